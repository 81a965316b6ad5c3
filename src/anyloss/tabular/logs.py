"""Scalars for TensorBoard: the scores during the training and on the test rows."""

from __future__ import annotations

from pathlib import Path

from anyloss.tabular.result import Result


def check_logs() -> None:
    """Raise an error before the fit, not after it, if TensorBoard is not installed."""
    try:
        import tensorboard  # noqa: F401  # only to see whether it is installed
        import torch  # noqa: F401  # only to see whether it is installed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"--log-dir needs {error.name}; install it with: pip install 'anyloss[logs]'"
        ) from None


def write_logs(result: Result, folder: Path | str) -> None:
    """Write the soft and the hard score of each training check, and the scores of the test rows."""
    check_logs()
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    scalars = [("test/anyloss", result.score, 0)]
    scalars += [(f"test/{baseline.name}", baseline.score, 0) for baseline in result.baselines]
    for step, soft, hard in result.curve:
        scalars += [("training/soft score", soft, int(step))]
        scalars += [("training/hard score, held out", hard, int(step))]
    for name, value, step in scalars:
        writer.add_scalar(name, value, step)
    writer.close()
