"""Class scores from whatever a network returns."""

from typing import Any

from torch import Tensor

__all__ = ["class_scores"]


def class_scores(output: Any) -> Any:
    """Return the scores in a network's output: its `logits` if it has them, as Hugging Face models do, else itself."""
    return output if isinstance(output, Tensor) else getattr(output, "logits", output)
