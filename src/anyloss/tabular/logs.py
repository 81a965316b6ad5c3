"""Scalars for TensorBoard: how the training went, and what came of it."""

from __future__ import annotations

from pathlib import Path

from anyloss.tabular.result import Result


def check_logs() -> None:
    """Refuse before the work, not after it, where TensorBoard is missing."""
    try:
        import tensorboard  # noqa: F401  # only whether it is there
        import torch  # noqa: F401  # the same
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"--log-dir needs {error.name}; install it with: pip install 'anyloss[logs]'"
        ) from None


def write_logs(result: Result, folder: Path | str) -> None:
    """Soft and hard score per check of the training, the score of the test rows, the rivals'."""
    check_logs()
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    scalars = [("test/anyloss", result.score, 0)]
    scalars += [(f"test/{rival.name}", rival.score, 0) for rival in result.rivals]
    for step, soft, hard in result.curve:
        scalars += [("training/soft score", soft, int(step))]
        scalars += [("training/hard score, held out", hard, int(step))]
    for name, value, step in scalars:
        writer.add_scalar(name, value, step)
    writer.close()
