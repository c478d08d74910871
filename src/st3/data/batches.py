"""Epochs as batches that depend on the seed alone: not on workers, ranks or interruptions."""

import signal
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .errors import DataError
from .examples import Examples
from .seeds import generator_for

__all__ = ["Batches"]

Batch: TypeAlias = tuple[Tensor, Tensor]
Request: TypeAlias = tuple[Tensor, Tensor | None]  # indices and draws, the arguments of Examples.batch


class Batches:
    """Batches of `batch_size` examples, counted over all ranks; the last batch of an epoch may be smaller.

    With a `seed`, every epoch is shuffled anew and augmented. The random numbers of a batch are drawn for all ranks
    together; then each rank takes its contiguous share of the batch, which may be empty. Without a seed (None) the
    examples come in order and are not augmented, for evaluation. `workers` is the number of processes that prepare
    batches; it is 0 for examples held on a GPU, where batches are made without them.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        *,
        seed: int | None,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be at least 0 and below the {ranks} ranks, got {rank}")
        if seed is not None and seed < 0:
            raise ValueError(f"seed must be at least 0 (or None for evaluation), got {seed}")
        if workers < 0:
            raise ValueError(f"workers must be at least 0, got {workers}")
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        self.rank, self.ranks = rank, ranks
        self.device = torch.device(device)
        self.workers = workers if examples.device.type == "cpu" else 0

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return -(-len(self.examples) // self.batch_size)

    def size(self, number: int) -> int:
        """Return how many examples batch `number` holds, counted over all ranks."""
        if not 0 <= number < len(self):
            raise IndexError(f"there is no batch {number} in an epoch of {len(self)} batches")
        return min(self.batch_size, len(self.examples) - number * self.batch_size)

    def epoch(self, epoch: int = 0, first: int = 0) -> Iterator[Batch]:
        """Yield this rank's share of each batch, on the device, beginning with batch number `first`."""
        if not 0 <= first <= len(self):
            raise ValueError(f"first must be from 0 to the {len(self)} batches of an epoch, got {first}")
        to_gpu = self.device.type == "cuda"
        for inputs, targets in self._make(_Requests(self, epoch, first)):
            if to_gpu and not self.workers and inputs.device.type == "cpu":
                inputs, targets = inputs.pin_memory(), targets.pin_memory()
            yield inputs.to(self.device, non_blocking=to_gpu), targets.to(self.device, non_blocking=to_gpu)

    def _make(self, requests: "_Requests") -> Iterator[Batch]:
        maker = _Maker(self.examples)
        if not self.workers:
            made: Iterator[Batch | DataError] = map(maker.__getitem__, requests)
        else:
            made = iter(
                DataLoader(
                    maker,
                    batch_size=None,
                    sampler=requests,
                    num_workers=self.workers,
                    collate_fn=_keep,
                    worker_init_fn=_ignore_signals,
                    pin_memory=self.device.type == "cuda",
                    # Otherwise the loader would draw its workers' seed from torch's global generator.
                    generator=torch.Generator(),
                )
            )
        try:
            for batch in made:
                if isinstance(batch, DataError):
                    raise batch
                yield batch
        finally:
            # Ends the workers. The traceback of an error would keep the loader alive, and since the workers ignore
            # SIGTERM, the interpreter would wait for them forever when it exits.
            del made


class _Requests:
    """This rank's indices and draws of one batch after the other."""

    def __init__(self, batches: Batches, epoch: int, first: int) -> None:
        self.batches, self.epoch, self.first = batches, epoch, first

    def __iter__(self) -> Iterator[Request]:
        batches, seed = self.batches, self.batches.seed
        total = len(batches.examples)
        if seed is None:
            order = torch.arange(total)
        else:
            order = torch.randperm(total, generator=generator_for(seed, self.epoch))
        for number in range(self.first, len(batches)):
            count = batches.size(number)
            begin = number * batches.batch_size
            share = slice(batches.rank * count // batches.ranks, (batches.rank + 1) * count // batches.ranks)
            indices = order[begin : begin + count][share]
            if seed is None:
                yield indices, None
            else:
                draws = batches.examples.draw(count, generator_for(seed, self.epoch, number))
                yield indices, draws[share]


class _Maker(Dataset[Batch | DataError]):
    """Turns requests into batches, in this process or in a worker.

    It returns a DataError instead of raising it: from a worker, torch would wrap the message in a stack trace.
    """

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitem__(self, request: Request) -> Batch | DataError:
        try:
            return self.examples.batch(*request)
        except DataError as error:
            return error


def _ignore_signals(worker: int) -> None:
    """A terminal or scheduler signals all processes; the main process must save first and then ends its workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _keep(batch: Any) -> Any:
    return batch
