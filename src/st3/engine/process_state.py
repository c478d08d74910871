"""What a process shares between its threads and the engine: torch's modes and threads, and locks."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch

__all__ = ["Lock", "plain_torch", "torch_threads"]


@contextmanager
def plain_torch() -> Iterator[None]:
    """No gradients; no autocast, since the engine computes in float32; no inference mode, since other threads help."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


class torch_threads:
    """Torch with a number of threads, to be used with `with`."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        if self.before != self.threads:
            torch.set_num_threads(self.threads)

    def __exit__(self, *failure: object) -> None:
        if self.before != self.threads:
            torch.set_num_threads(self.before)


class Lock:
    """A lock, to be used with `with`; it is free in a forked process, where the thread that held it does not exist."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _ALL.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *failure: object) -> None:
        self._lock.release()


_ALL: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_ALL):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
