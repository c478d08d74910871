"""A lock that is free in a forked process, even if another thread held it: that thread does not exist there."""

import os
import threading
from weakref import WeakSet

__all__ = ["Lock"]


class Lock:
    """To be used with `with`."""

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
