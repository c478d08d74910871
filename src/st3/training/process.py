"""This process and the others of a run: there may be one, or several that `torchrun` started."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Process", "join_processes"]


@dataclass(frozen=True)
class Process:
    """This process: its rank, how many there are, and the device it works on."""

    rank: int
    ranks: int
    device: torch.device
    messages: Any = None  # a group for small messages that does not wait for the device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def sum(self, numbers: Tensor) -> Tensor:
        """Replace `numbers` by their sum over all processes, and return them."""
        if self.ranks > 1:
            dist.all_reduce(numbers)
        return numbers

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether any process raised it; all processes must call this at the same moment."""
        if self.ranks == 1:
            return flags
        votes = torch.tensor([float(flag) for flag in flags])
        dist.all_reduce(votes, group=self.messages)
        return tuple(vote > 0 for vote in votes.tolist())

    def gather(self, thing: Any) -> list[Any] | None:
        """Return what every process holds, in the first one; None in the others."""
        if self.ranks == 1:
            return [thing]
        things: list[Any] | None = [None] * self.ranks if self.is_first else None
        dist.gather_object(thing, things, group=self.messages)
        return things

    def share(self, thing: Any) -> Any:
        """Return the first process's thing in every process."""
        if self.ranks == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, group=self.messages)
        return box[0]

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.ranks > 1:
            dist.barrier(group=self.messages)


@contextlib.contextmanager
def join_processes(device: str = "auto") -> Iterator[Process]:
    """Join the processes that `torchrun` started, if it did, and leave them at the end.

    `device` is "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:1". Each process on a machine takes the CUDA
    device of its local rank.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if ranks == 1:
        yield Process(0, 1, chosen)
        return
    if ":" in device:
        raise ValueError(
            f"{ranks} processes cannot share device {device!r}: give --device cuda, and each takes another one"
        )
    is_ours = not dist.is_initialized()
    if is_ours:
        backend = "nccl" if chosen.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=30))
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
        messages = dist.new_group(backend="gloo")
    else:
        messages = dist.group.WORLD
    try:
        yield Process(dist.get_rank(), ranks, chosen, messages)
    finally:
        if is_ours:
            dist.destroy_process_group()


def _device(name: str, local_rank: int) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; try auto, cpu, cuda or cuda:1") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(
                f"device {name!r} was asked for, but torch finds no CUDA device; try --device cpu"
            )
        if device.index is None:
            device = torch.device("cuda", local_rank)
        if (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(
                f"device {device} was asked for, but there are only {torch.cuda.device_count()}, from cuda:0 on"
            )
    return device
