"""With this folder on PYTHONPATH, a process that talks to other ranks ends when its threads are idle.

A thread of Gloo that drops its last operation asks for Python's lock. If Python is being shut down
by then, versions before 3.14 end that thread, and C++ aborts the process ("terminate called without
an active exception"), after all of its work was done. On busy processors that is not rare. PyTorch
cannot be asked to wait: DistributedDataParallel keeps the group and its threads alive even after
`destroy_process_group`.
"""

import atexit
import os
import sys
import time


def wait_for_idle_threads() -> None:
    if "torch.distributed" in sys.modules:
        time.sleep(1.0)


if "GLOO_SOCKET_IFNAME" in os.environ:  # only the tests of several ranks set it
    atexit.register(wait_for_idle_threads)
