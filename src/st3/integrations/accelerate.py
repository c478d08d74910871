"""Sparse training with Accelerate: `st3.sparsify` after `prepare`, and this count of steps."""

import math
from typing import Any

__all__ = ["total_steps"]


def total_steps(accelerator: Any, loader: Any, epochs: int) -> int:
    """Return how often `optimizer.step` takes effect in `epochs` passes over a prepared loader.

    The loop steps inside `accelerator.accumulate`, which lets one step per `gradient_accumulation_steps` batches
    through and, unless the accelerator was told otherwise, one at the end of the loader for the batches that are left.

    >>> import torch
    >>> from accelerate import Accelerator
    >>> accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    >>> loader = accelerator.prepare(torch.utils.data.DataLoader(range(10)))
    >>> total_steps(accelerator, loader, epochs=2)
    6
    """
    if not hasattr(loader, "end_of_dataloader"):
        raise TypeError(
            f"total_steps needs the loader that accelerator.prepare has returned, got an unprepared "
            f"{type(loader).__name__}: only that one is shared among the processes"
        )
    try:
        batches = len(loader)
    except TypeError as error:
        raise TypeError(
            "total_steps cannot count the batches of a loader without a length: give sparsify the number of steps "
            "that your loop makes"
        ) from error
    accumulated: int = accelerator.gradient_accumulation_steps
    if accelerator.gradient_state.sync_with_dataloader:
        return epochs * math.ceil(batches / accumulated)
    return epochs * batches // accumulated
