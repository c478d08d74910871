"""Section 4.2: ST-3 with four times the epochs against LRR with six cycles."""

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from ..evidence.verdicts import Claim, NoBetter
from .series import LRR, ST3
from .study import STUDIES, Panel, Study

__all__ = ["Long"]

SPARSITY = 0.6723  # 1 - 0.8^5: after five prunings
ONCE = replace(ST3, sparsities=(SPARSITY,))
FOUR_TIMES = replace(ST3, name="st3-long", label="ST-3, 4 x the epochs", sparsities=(SPARSITY,), times=4)
SIX_CYCLES = replace(
    LRR, label="LRR, 6 cycles", protocol={"name": "lrr", "arguments": {"count": 6}}, sparsities=(None,)
)


@final
@STUDIES.register("long")
class Long(Study):
    """What more epochs bring: in one longer cycle, and in six cycles."""

    name = "long"
    title = "One longer cycle against six cycles"
    shown_in = "section 4.2"
    claims = (
        Claim(
            "With four times the epochs, ST-3 reaches LRR with six cycles at 67.23 %.",
            [NoBetter("lrr", "st3-long", margin=0.002, at=(SPARSITY,))],
        ),
    )

    def panels(self) -> Sequence[Panel]:
        return [Panel("ResNet-20: more epochs", (ONCE, FOUR_TIMES, SIX_CYCLES), with_published=True)]
