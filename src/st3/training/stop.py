"""Ctrl-C and SIGTERM as a wish that the loop fulfils between two steps, after saving."""

import signal
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopWish", "Stopped"]


class Stopped(Exception):
    """Training was asked to stop, and everything is saved."""

    def __init__(self, signal_number: int, epoch: int, step: int) -> None:
        self.signal_number = (
            signal_number or signal.SIGTERM
        )  # another process was told, and this one heard of it
        super().__init__(f"stopped in epoch {epoch + 1}, after step {step}; everything is saved")


class StopWish:
    """Notes SIGINT and SIGTERM while it is open. A second Ctrl-C stops at once, without saving."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._before: dict[int, Any] = {}

    @property
    def is_there(self) -> bool:
        """Whether this process was asked to stop."""
        return bool(self.signal_number)

    def __enter__(self) -> "StopWish":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:
            pass  # not the main thread: whoever runs it handles signals
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number
