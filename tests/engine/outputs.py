"""Compare the outputs of two models."""

from typing import Any

import torch
from torch.utils._pytree import tree_flatten

__all__ = ["assert_close"]


def assert_close(got: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Assert the same structure and the same leaves, within `tolerance` of each leaf's largest value."""
    got, form = tree_flatten(got)
    expected, expected_form = tree_flatten(expected)
    assert form == expected_form
    for one, other in zip(got, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other
            continue
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert not one.requires_grad
        wanted = other.detach().double()
        torch.testing.assert_close(one.double(), wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))
