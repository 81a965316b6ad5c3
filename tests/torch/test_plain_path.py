"""What compilers and accelerators see: few operations, one graph, and no look at a value."""

import pytest
import torch

from anyloss._core.options import make_settings
from anyloss.steps import Amplified
from anyloss.torch import AnyLoss
from anyloss.torch.batch import read_batch
from anyloss.torch.plain import plain_loss

G = torch.Generator().manual_seed(0)
BINARY = torch.randn(64, generator=G), (torch.rand(64, generator=G) < 0.3).float()
LABELS = torch.randn(32, 4, generator=G), (torch.rand(32, 4, generator=G) < 0.3).float()
CLASSES = torch.randn(32, 5, generator=G), torch.randint(5, (32,), generator=G)
MASKS = torch.randn(4, 1, 8, 8, generator=G), (torch.rand(4, 1, 8, 8, generator=G) < 0.3).float()
PIXELS = torch.randn(2, 3, 8, 8, generator=G), torch.randint(3, (2, 8, 8), generator=G)
CASES = {
    "binary": (BINARY, {}),
    "multilabel": (LABELS, {}),
    "multiclass": (CLASSES, {}),
    "pixels": (PIXELS, {}),
    "per sample": (MASKS, {"per_sample": True}),
    "amplified": (BINARY, {"step": Amplified(73.0)}),
    "amplified classes": (CLASSES, {"step": Amplified(73.0)}),
    "weights": ((*BINARY, torch.rand(64, generator=G)), {}),
    "weights per sample": ((*MASKS, torch.rand(4, generator=G)), {"per_sample": True}),
    "weights of pixels": ((*PIXELS, torch.rand(2, 8, 8, generator=G)), {}),
    "ignored classes": (CLASSES, {"ignore_index": 1}),
    "ignored samples": (BINARY, {"ignore_index": 0}),
    "cross-entropy": (BINARY, {"cross_entropy": 0.1}),
    "cross-entropy of pixels": (PIXELS, {"cross_entropy": 0.1, "squared": True}),
    "cross-entropy, weights": ((*CLASSES, torch.rand(32, generator=G)), {"cross_entropy": 0.1}),
    "thresholds per label": (LABELS, {"threshold": [0.2, 0.4, 0.6, 0.8]}),
    "sigmoid over classes": (CLASSES, {"activation": "sigmoid"}),
}
every_case = pytest.mark.parametrize(("batch", "options"), CASES.values(), ids=CASES)


def test_a_binary_loss_takes_at_most_thirty_operations():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(AnyLoss("f1"), backend=backend, fullgraph=True)(*BINARY)
    (graph,) = graphs
    assert sum(node.op.startswith("call_") for node in graph.graph.nodes) <= 30


@every_case
def test_the_compiler_finds_one_graph(batch, options):
    torch._dynamo.reset()
    z, *rest = batch
    found = torch._dynamo.explain(AnyLoss("f1", **options))(z.clone().requires_grad_(), *rest)
    assert (found.graph_count, found.graph_break_count) == (1, 0)


@every_case
def test_an_accelerator_is_never_waited_for(batch, options):
    """`meta` tensors hold no values: `item`, `tolist`, `numpy` and copies to the host raise.

    Fake tensors on "cuda" cannot be indexed without a build for GPUs.
    """
    z, *rest = (x.to("meta") for x in batch)
    settings = make_settings("f1", **options)
    for closed_form in (True, False):
        x = z.clone().requires_grad_()
        given = read_batch(x, *rest, *[None] * (2 - len(rest)), settings)
        assert given.has_closed_form(settings.steps[0])
        if closed_form:
            loss = AnyLoss("f1", **options)(x, *rest)
        else:
            loss = plain_loss(given, 0, settings, None)
        loss.backward()
        assert loss.device.type == x.grad.device.type == "meta"
        assert x.grad.shape == z.shape
