"""What a process sends inside `with`: the collectives it calls, and the bytes that the kernel writes for it.

The kernel counts every byte that a process writes (/proc/self/io, Linux only), to sockets too: gloo's messages, each
with a header, and nothing else as long as the program writes no file and prints nothing.
"""

from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["GLOO_HEADER", "Wire"]

GLOO_HEADER = 48  # bytes before the payload of every message, written at once with it
_COUNTERS = Path("/proc/self/io")


class Wire(TorchDispatchMode):
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []  # of the collectives
        self.payload = 0  # bytes handed to them
        self.written = 0  # bytes that the kernel wrote
        self.messages = 0  # in so many calls

    @property
    def sent(self) -> int:
        """The bytes that left the process, without gloo's headers."""
        return self.written - GLOO_HEADER * self.messages

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.names.append(func.overloadpacket.__name__)
            self.payload += sum(tensor.numel() * tensor.itemsize for tensor in args[0])
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> "Wire":
        self._count(-1)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._count(1)

    def _count(self, sign: int) -> None:
        if not _COUNTERS.exists():
            return
        found = dict(line.split(": ") for line in _COUNTERS.read_text().splitlines())
        self.written += sign * int(found["wchar"])
        self.messages += sign * int(found["syscw"])
