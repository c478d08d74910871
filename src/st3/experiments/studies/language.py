"""Sparse training of a small GPT: how many bits a character costs at high sparsity.

Feather, TopK and PDP keep the ramps of their authors. ST-3 is also trained on those of Feather and TopK, so that method
and ramp can be told apart.
"""

from collections.abc import Sequence
from typing import final

from ...methods import Feather, TopK
from ..evidence.verdicts import Better, Claim
from .series import FEATHER, GMP, PDP, ST3, TOPK, Series
from .study import STUDIES, Panel, Study

__all__ = ["Language"]


def st3_on_the_ramp_of(method: type[Feather | TopK], series: Series) -> Series:
    assert method.usual_times is not None
    start, end = method.usual_times
    ramp = {"name": method.usual_ramp, "arguments": {"start": start, "end": end}}
    return Series(f"st3-{series.name}-ramp", f"ST-3, ramp of {series.label}", "st3", {"ramp": ramp})


ON_FEATHERS_RAMP = st3_on_the_ramp_of(Feather, FEATHER)
ON_TOPKS_RAMP = st3_on_the_ramp_of(TopK, TOPK)
# Its batches are twice as large: twice the epochs are as many steps.
TOPK_OWN_RECIPE = Series(
    "topk-recipe", "TopK, recipe of its authors", "topk", times=2, recipe="language-topk"
)


@final
@STUDIES.register("language")
class Language(Study):
    """Bits per character over sparsity of a GPT that reads a book, at equal steps."""

    name = "language"
    title = "A small GPT on a book"
    usual_budget = "text"
    claims = (
        Claim("ST-3 is better than GMP.", [Better("st3", "gmp")], "gpt"),
        Claim("Feather is better than GMP.", [Better("feather", "gmp")], "gpt"),
        Claim("ST-3 is better than Feather.", [Better("st3", "feather")], "gpt"),
        Claim(
            "ST-3 is better than Feather on Feather's ramp.", [Better("st3-feather-ramp", "feather")], "gpt"
        ),
        Claim(
            "Feather's ramp is better for ST-3 than the recipe's.", [Better("st3-feather-ramp", "st3")], "gpt"
        ),
        Claim("ST-3 is better than TopK.", [Better("st3", "topk")], "gpt"),
        Claim("ST-3 is better than TopK on TopK's ramp.", [Better("st3-topk-ramp", "topk")], "gpt"),
        Claim("TopK is better by its authors' recipe.", [Better("topk-recipe", "topk")], "gpt"),
        Claim("ST-3 is better than PDP.", [Better("st3", "pdp")], "gpt"),
    )

    def panels(self) -> Sequence[Panel]:
        return [
            Panel(
                "Thresholds and ramps (lower is better)",
                (ST3, ON_FEATHERS_RAMP, ON_TOPKS_RAMP, GMP, FEATHER),
                "gpt",
            ),
            Panel("TopK and PDP (lower is better)", (ST3, ON_TOPKS_RAMP, TOPK, TOPK_OWN_RECIPE, PDP), "gpt"),
        ]
