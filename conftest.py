"""What the frameworks must be told before they are first imported."""

import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # for shard_map
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# The processes that tests start: those of several ranks end when their threads are idle.
EXITS = Path(__file__).parent / "tests" / "exits"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(EXITS), *filter(None, [os.environ.get("PYTHONPATH")])]
)
