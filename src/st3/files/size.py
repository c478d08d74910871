"""The size of a sparse file, compared with dense storage and with the entropy bound."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..tables import size_text, text_table

__all__ = ["SparseSize", "count_zeros"]


@dataclass(frozen=True)
class SparseSize:
    """Bytes of a sparse file and of its parts."""

    dense_bytes: int  # all numbers including zeros; tied weights once
    file_bytes: int
    position_bytes: int  # coded positions of all sparse tensors, and signs of their negative zeros
    position_bound: (
        float  # their entropy: log2 of the number of masks with as many zeros, summed over tensors
    )
    value_bytes: int  # all other stored tensors: values and dense tensors
    numbers: int
    zeros: int
    sign_bytes: int = 0  # the part of position_bytes that holds signs of negative zeros

    @property
    def bound_bytes(self) -> float:
        """The size of the file without its header if positions took exactly their entropy."""
        return self.value_bytes + self.position_bound

    @property
    def ratio(self) -> float:
        """The dense size divided by the size of the file."""
        return self.dense_bytes / self.file_bytes

    @property
    def is_smaller(self) -> bool:
        """Whether the file is at least 1 % smaller than dense storage."""
        return self.ratio >= 1.01

    @property
    def over_bound(self) -> float:
        """The bytes of the positions divided by their entropy; 1 if there are none."""
        return self.position_bytes / self.position_bound if self.position_bound else 1.0

    def to_dict(self) -> dict[str, float]:
        """Return the sizes, ready for JSON."""
        return {
            "dense_bytes": self.dense_bytes,
            "file_bytes": self.file_bytes,
            "bound_bytes": round(self.bound_bytes),
            "position_bytes": self.position_bytes,
            "position_bound_bytes": round(self.position_bound),
        }

    def __str__(self) -> str:
        ratio = f"{self.ratio:.2f} times smaller" if self.is_smaller else ""
        rows = [
            ["all numbers, stored densely", size_text(self.dense_bytes), ""],
            ["this file", size_text(self.file_bytes), ratio],
            ["bound: values and entropy of positions", size_text(round(self.bound_bytes)), ""],
        ]
        if self.position_bound:
            over = f"{100 * (self.over_bound - 1):+.1f} % over their entropy"
            rows.insert(2, ["of which positions", size_text(self.position_bytes), over])
        return f"{text_table(['size', '', ''], rows, left=(0, 2))}\n{self.verdict}"

    @property
    def verdict(self) -> str:
        """One sentence that says how much smaller the file is, or that it is not."""
        share = (
            f"{100 * self.zeros / self.numbers:.1f} % of the numbers are zero"
            if self.numbers
            else "the model is empty"
        )
        if not self.is_smaller:
            return f"No gain: {share}, and the file is as large as one that stores them all."
        signs = ""
        if 50 * self.sign_bytes > self.file_bytes:
            signs = f"; {size_text(self.sign_bytes)} of it are signs of negative zeros: weight.add_(0.0) removes them"
        return f"{share[0].upper()}{share[1:]}; the file is {self.ratio:.1f} times smaller than all numbers{signs}."


def count_zeros(tensor: Tensor) -> int:
    """Return how many numbers of a tensor of any type are zero."""
    try:
        return tensor.numel() - int(torch.count_nonzero(tensor))
    except RuntimeError:  # torch cannot count some types, such as 8-bit floats
        return tensor.numel() - int(torch.count_nonzero(tensor.double()))
