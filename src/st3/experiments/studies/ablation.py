"""Figure 5: what each of ST-3's three parts contributes."""

from collections.abc import Sequence
from typing import final

from ..evidence.verdicts import Better, Claim, NoBetter
from .series import HARD, HARD_RESCALE, SOFT, SOFT_RESCALE, SOFT_STE, ST3
from .study import STUDIES, Panel, Study

__all__ = ["Ablation"]


@final
@STUDIES.register("ablation")
class Ablation(Study):
    """ST-3 without straight-through gradients, soft thresholding, rescaling: each on and off."""

    name = "ablation"
    title = "The three parts of ST-3"
    shown_in = "figure 5"
    claims = (
        Claim(
            "Straight-through gradients matter: without them soft thresholding is worse.",
            [Better("soft-ste", "soft"), Better("st3", "soft-rescale")],
        ),
        Claim(
            "Soft thresholding matters: with straight-through gradients it is better than hard thresholding.",
            [Better("soft-ste", "hard"), Better("st3", "hard-rescale")],
        ),
        Claim(
            "Rescaling helps with soft thresholding, and not with hard thresholding.",
            [Better("st3", "soft-ste"), NoBetter("hard-rescale", "hard", margin=0.002)],
        ),
    )

    def panels(self) -> Sequence[Panel]:
        return [
            Panel("ResNet-20: the parts of ST-3", (ST3, SOFT_STE, HARD, HARD_RESCALE, SOFT_RESCALE, SOFT))
        ]
