"""Ctrl-C and SIGTERM as a request: the loop saves between two steps, then stops."""

import signal
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopRequest", "Stopped"]


class Stopped(Exception):
    """Training was asked to stop, and everything is saved."""

    def __init__(self, signal_number: int, epoch: int, step: int) -> None:
        # 0: the signal reached another process, which told this one
        self.signal_number = signal_number or signal.SIGTERM
        super().__init__(f"stopped in epoch {epoch + 1}, after step {step}; everything is saved")


class StopRequest:
    """Notes SIGINT and SIGTERM while it is open. A second Ctrl-C stops at once, without saving."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._before: dict[int, Any] = {}

    @property
    def was_made(self) -> bool:
        """Whether this process was asked to stop."""
        return bool(self.signal_number)

    def __enter__(self) -> "StopRequest":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:
            pass  # not the main thread: whoever started this one handles signals
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number
