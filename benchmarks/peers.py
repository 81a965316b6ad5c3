"""Our PyTorch losses beside those of other libraries: time and memory of forward and backward.

    python benchmarks/peers.py                       # all cases, a quarter of an hour
    python benchmarks/peers.py --quick               # up to a million numbers, nothing compiled
    python benchmarks/peers.py --only 8x1x256x256    # some cases

The other libraries live in `.venv-peers`, which the first run creates; the benchmark runs there.
Within a case the losses take turns in random order on one thread. A time is the median of the
processor times, as a ratio to that of PyTorch's cross-entropy on the same tensors in the same run.
Memory is the peak beyond the inputs, in sizes of one gradient. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from environments import python_of

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-peers"
PYTHON = ENVIRONMENT / "bin" / "python"
LIBRARIES = ["monai", "kornia", "keras", "rich"]
# Installed without its dependencies: torchvision would pull another build of torch, and the losses
# need none of them.
SMP = "segmentation-models-pytorch==0.6.0"
# The shapes of the input. A fitted case has the logits of a model that fits its labels.
CASES = {
    "one column": ["256", "256-fitted", "4096", "65536", "1000000", "1000000-fitted", "4000000"],
    "masks and volumes": ["16x1x32x32", "8x1x256x256", "8x1x256x256-fitted", "2x1x64x64x64"],
    "classes": ["4096x10", "2x21x128x128", "2x21x128x128-fitted", "65536x100"],
}


def install() -> None:
    """Create the environment, or bring it up to date with the files that determine it."""
    constraints = ROOT / "constraints.txt"
    given = ["--constraint", str(constraints)]
    installs = [
        [*given, "--editable", f"{ROOT}[torch]", *LIBRARIES],
        [*given, "--no-deps", SMP],
    ]
    python_of(ENVIRONMENT, installs, [ROOT / "pyproject.toml", constraints])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller cases, nothing compiled")
    names = [name for group in CASES.values() for name in group]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", default=names)
    arguments = parser.parse_args()
    if Path(sys.prefix) != ENVIRONMENT:
        install()
        settings = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
        os.execve(PYTHON, [str(PYTHON), *sys.argv], os.environ | settings)
    from peer_tables import run  # needs the libraries of the environment

    cases = {group: [x for x in found if x in arguments.only] for group, found in CASES.items()}
    run({group: found for group, found in cases.items() if found}, arguments.quick)


if __name__ == "__main__":
    main()
