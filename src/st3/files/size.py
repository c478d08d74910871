"""How large a sparse file is, against the dense numbers and against what no code can beat."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..tables import size_text, text_table

__all__ = ["SparseSize", "count_zeros"]


@dataclass(frozen=True)
class SparseSize:
    """Bytes of a sparse file."""

    dense_bytes: int  # all numbers, zeros too; tied weights once
    file_bytes: int
    position_bytes: int  # coded positions of all sparse tensors, and signs of their negative zeros
    position_bound: float  # their entropy: log2 of the number of masks with as many zeros, tensor by tensor
    value_bytes: int  # everything else that is stored, without the header
    numbers: int
    zeros: int
    sign_bytes: int = 0  # what the signs of negative zeros take

    @property
    def bound_bytes(self) -> float:
        """The file without its header if positions took no more than their entropy."""
        return self.value_bytes + self.position_bound

    @property
    def ratio(self) -> float:
        """How many times smaller than the dense numbers the file is."""
        return self.dense_bytes / self.file_bytes

    @property
    def is_gain(self) -> bool:
        return self.ratio >= 1.01

    @property
    def over_bound(self) -> float:
        """The bytes of the positions over their entropy; 1 if there are none."""
        return self.position_bytes / self.position_bound if self.position_bound else 1.0

    def to_dict(self) -> dict[str, float]:
        """Return the figures, ready for JSON."""
        return {
            "dense_bytes": self.dense_bytes,
            "file_bytes": self.file_bytes,
            "bound_bytes": round(self.bound_bytes),
            "position_bytes": self.position_bytes,
            "position_bound_bytes": round(self.position_bound),
        }

    def __str__(self) -> str:
        rows = [
            ["all numbers, stored densely", size_text(self.dense_bytes), ""],
            [
                "this file",
                size_text(self.file_bytes),
                f"{self.ratio:.2f} times smaller" if self.is_gain else "",
            ],
            ["bound: values and entropy of positions", size_text(round(self.bound_bytes)), ""],
        ]
        if self.position_bound:
            over = f"{100 * (self.over_bound - 1):+.1f} % to their entropy"
            rows.insert(2, ["... of it positions", size_text(self.position_bytes), over])
        return f"{text_table(['size', '', ''], rows, left=(0, 2))}\n{self.verdict}"

    @property
    def verdict(self) -> str:
        """One sentence: what was gained, or that nothing was."""
        share = (
            f"{100 * self.zeros / self.numbers:.1f} % of the numbers are zero"
            if self.numbers
            else "it is empty"
        )
        if not self.is_gain:
            return f"No gain: {share}, and the file is as large as one that stores them all."
        signs = ""
        if 50 * self.sign_bytes > self.file_bytes:
            signs = f"; {size_text(self.sign_bytes)} of it are signs of negative zeros: weight.add_(0.0) removes them"
        return f"{share[0].upper()}{share[1:]}; the file is {self.ratio:.1f} times smaller than all numbers{signs}."


def count_zeros(tensor: Tensor) -> int:
    """Return how many numbers of a tensor are zero, of whatever type."""
    try:
        return tensor.numel() - int(torch.count_nonzero(tensor))
    except RuntimeError:  # torch cannot count in some of its types, such as eight-bit floats
        return tensor.numel() - int(torch.count_nonzero(tensor.double()))
