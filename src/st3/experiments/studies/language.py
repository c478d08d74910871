"""Sparse training of a small GPT: how many bits a character costs at high sparsity."""

from collections.abc import Sequence
from typing import final

from ..evidence.verdicts import Better, Claim
from .series import FEATHER, GMP, ST3, TOPK
from .study import STUDIES, Panel, Study

__all__ = ["Language"]


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
        Claim("ST-3 is better than TopK.", [Better("st3", "topk")], "gpt"),
    )

    def panels(self) -> Sequence[Panel]:
        return [Panel("GPT on text (lower is better)", (ST3, GMP, FEATHER, TOPK), "gpt")]
