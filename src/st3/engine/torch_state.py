"""The state of torch in which the engine compiles and computes, whatever the caller's is."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["plain_torch"]


@contextmanager
def plain_torch() -> Iterator[None]:
    """No gradients; no autocast, since the engine computes in float32; no inference mode, since other threads help."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield
