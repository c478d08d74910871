"""Figure 3: methods of one training cycle, and LRR with its many, on CIFAR."""

from collections.abc import Sequence
from typing import final

from ..evidence.verdicts import Better, Claim, NoBetter
from .series import GMP, GRANET, LRR, LRR_RESET, LRR_ST3, PROBMASK, SOFT, ST3
from .study import STUDIES, Panel, Study

__all__ = ["Cifar"]

ONE_CYCLE = (ST3, GMP, SOFT, PROBMASK, GRANET)


@final
@STUDIES.register("cifar")
class Cifar(Study):
    """Accuracy over sparsity of methods that train once, and of training in cycles."""

    name = "cifar"
    title = "Methods compared on CIFAR"
    shown_in = "figure 3"
    differences = (
        "GMP is Zhu & Gupta's, whose zeroed weights stay zero, not the authors' variant (`gmp` with `returns=true`). "
        "ProbMask draws one mask per step, and its batch-norm statistics come from training pictures. VGG-11 is the "
        "network of the authors' program, `vgg11_st3`. The sparsities on the axis are ours: the paper names none."
    )
    claims = (
        Claim(
            "ST-3 is more accurate than soft thresholding whose zeroed weights get no gradient (the paper's STR), and "
            "that is more accurate than GMP.",
            [Better("st3", "soft"), Better("soft", "gmp")],
        ),
        Claim(
            "Of the methods that train once, ST-3 is the most accurate, ahead of ProbMask and GraNet.",
            [Better("st3", "probmask"), Better("st3", "granet")],
        ),
        Claim("LRR with its many cycles is more accurate than ST-3 with one.", [Better("lrr", "st3")]),
        Claim("ST-3 inside LRR's cycles is more accurate than LRR.", [Better("lrr-st3", "lrr")]),
        Claim(
            "LRR that sees the same augmented pictures in every cycle is no better than ST-3.",
            [NoBetter("lrr-reset", "st3", margin=0.003)],
        ),
    )

    def panels(self) -> Sequence[Panel]:
        every = (*ONE_CYCLE, LRR, LRR_ST3)
        return [
            Panel("ResNet-20 on CIFAR-10", every),
            Panel("the same, LRR with the same pictures in each cycle", (ST3, LRR_RESET, LRR)),
            Panel("VGG-11 on CIFAR-10", every, "vgg11"),
            Panel("WideResNet-34x2 on CIFAR-100", every, "wrn34x2"),
        ]
