"""What the frameworks must be told before they are first imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # for shard_map
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
