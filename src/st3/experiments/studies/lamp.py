"""Figure 7: LAMP in place of magnitudes; and what the allocations cost in multiply-adds."""

from collections.abc import Sequence
from typing import final

from ..evidence.verdicts import Better, Claim, NoBetter
from .series import ERK, HARD_LAMP, HARD_RESCALE_LAMP, SIGMA, SOFT_STE_LAMP, ST3, ST3_LAMP
from .study import STUDIES, Panel, Study

__all__ = ["Lamp"]


@final
@STUDIES.register("lamp")
class Lamp(Study):
    """The parts of ST-3 with LAMP; multiply-adds and accuracy of LAMP, ERK and sigma against magnitudes alone."""

    name = "lamp"
    title = "Allocations: LAMP, ERK, sigma"
    shown_in = "figure 7"
    differences = (
        "the paper's figure has the first two panels with LAMP alone; ERK and sigma are added, because the paper "
        "makes claims about them that need no ImageNet to be tested."
    )
    claims = (
        Claim(
            "LAMP brings no accuracy over plain magnitudes, and costs multiply-adds.",
            [NoBetter("st3-lamp", "st3", margin=0.005), Better("st3", "st3-lamp", macs=True)],
        ),
        Claim(
            "With LAMP, too, rescaling helps with soft thresholding and not with hard thresholding.",
            [Better("st3-lamp", "soft-ste-lamp"), NoBetter("hard-rescale-lamp", "hard-lamp", margin=0.002)],
        ),
        Claim(
            "One threshold for all layers is at least as accurate as ERK and LAMP.",
            [NoBetter("st3-erk", "st3", margin=0.005), NoBetter("st3-lamp", "st3", margin=0.005)],
        ),
        Claim(
            "Sigma saves multiply-adds and loses little accuracy (less than a point).",
            [Better("st3-sigma", "st3", macs=True), NoBetter("st3", "st3-sigma", margin=0.01)],
        ),
    )

    def panels(self) -> Sequence[Panel]:
        allocations = (ST3, ST3_LAMP, ERK, SIGMA)
        return [
            Panel(
                "ResNet-20: the parts of ST-3, with LAMP",
                (ST3_LAMP, SOFT_STE_LAMP, HARD_LAMP, HARD_RESCALE_LAMP),
            ),
            Panel("multiply-adds of the allocations", allocations, y="macs"),
            Panel("accuracy of the allocations", allocations),
            Panel("accuracy over multiply-adds", allocations, x="macs"),
        ]
