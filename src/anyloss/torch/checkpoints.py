"""The state of `refine` in one file, written completely or not at all after each epoch."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from anyloss._core.outputs import replacing
from anyloss.torch.rows import gather
from anyloss.torch.snapshots import restore, snapshot
from anyloss.torch.sync import ranks


def is_first_rank() -> bool:
    """Whether this process writes files and shows progress."""
    return ranks(True, None) == 1 or dist.get_rank() == 0


class Checkpoint:
    """A file with the state of a model, of the random numbers and of objects with `state_dict`.

    The first rank writes it, and all ranks read it. Without a path nothing is written or read.
    """

    def __init__(self, path: str | Path | None, model: nn.Module, settings: dict[str, Any]) -> None:
        self.path, self.model = None if path is None else Path(path), model
        self.settings = {name: str(value) for name, value in settings.items()}

    def load(self) -> dict[str, Any] | None:
        """Restore the model and the random numbers; the states of the objects, None if new."""
        if self.path is None or not self.path.exists():
            return None
        try:
            state: Any = torch.load(self.path, map_location="cpu", weights_only=True)
        except (UnpicklingError, RuntimeError, EOFError):
            state = None
        if not isinstance(state, dict) or "settings" not in state:
            raise ValueError(
                f"{self.path} is not a checkpoint that refine has written, or it is damaged: "
                "remove it to begin again, or name another file"
            )
        for name, value in self.settings.items():
            if state["settings"].get(name) != value:
                raise ValueError(
                    f"{self.path} was written with {name}={state['settings'].get(name)}; got "
                    f"{name}={value}. Use the same settings, or remove the file to begin again"
                )
        restore(self.model, state["model"])
        rank = dist.get_rank() if ranks(True, None) > 1 else 0
        torch.set_rng_state(state["random"][rank].clone())  # a view crashes PyTorch
        if state["device_random"] is not None:
            torch.cuda.set_rng_state(state["device_random"][rank].clone())
        return state

    def save(self, **objects: Any) -> None:
        """Write the state, with that of each object. All ranks must call this."""
        if self.path is None:
            return
        device = next(self.model.parameters()).device
        on_gpu = device.type == "cuda"
        state = {name: each.state_dict() for name, each in objects.items()} | {
            "settings": self.settings,
            "model": snapshot(self.model),
            "random": gather(torch.get_rng_state()[None].to(device)).cpu(),
            "device_random": gather(torch.cuda.get_rng_state()[None].to(device)).cpu()
            if on_gpu
            else None,
        }
        if is_first_rank():
            with replacing(self.path) as part:
                torch.save(state, part)
