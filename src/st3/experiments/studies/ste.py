"""Figure 1: hard thresholding with straight-through gradients fails at high sparsity, soft thresholding does not."""

from collections.abc import Sequence
from typing import final

from ..evidence.verdicts import Better, Claim
from .series import HARD, SOFT_STE, ST3
from .study import STUDIES, Panel, Study

__all__ = ["Ste"]


@final
@STUDIES.register("ste")
class Ste(Study):
    """Accuracy over sparsity with straight-through gradients: hard against soft thresholding."""

    name = "ste"
    title = "Straight-through gradients with hard and soft thresholds"
    shown_in = "figure 1"
    claims = (
        Claim(
            "At 99 % sparsity soft thresholding keeps an accuracy that hard thresholding loses.",
            [Better("soft-ste", "hard", at=(0.99,)), Better("st3", "hard", at=(0.99,))],
        ),
    )

    def panels(self) -> Sequence[Panel]:
        return [Panel("ResNet-20, straight-through gradients", (HARD, SOFT_STE, ST3))]
