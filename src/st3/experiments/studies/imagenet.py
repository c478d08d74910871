"""Figure 4: ResNet-50 and MobileNetV1 on ImageNet, over sparsity and over multiply-adds."""

from collections.abc import Sequence
from typing import final

from ..evidence.verdicts import Better, Claim, NoBetter
from .series import SIGMA, ST3
from .study import STUDIES, Panel, Study

__all__ = ["ImageNet"]


@final
@STUDIES.register("imagenet")
class ImageNet(Study):
    """All published points of the paper's two tables, and our runs over them where there are any."""

    name = "imagenet"
    title = "ResNet-50 and MobileNetV1 on ImageNet"
    shown_in = "figure 4"
    differences = (
        "only ST-3 and ST-3σ are trained; the other methods' points are the published ones, as in the paper."
    )
    claims = (
        Claim(
            "Sigma saves multiply-adds and loses little accuracy (less than a point).",
            [Better("st3-sigma", "st3", macs=True), NoBetter("st3", "st3-sigma", margin=0.01)],
            network="resnet50",
        ),
    )

    def panels(self) -> Sequence[Panel]:
        networks = {"resnet50": "ResNet-50", "mobilenet_v1": "MobileNetV1"}
        return [
            Panel(title, (ST3, SIGMA), network, x, with_published=True)
            for network, title in networks.items()
            for x in ("sparsity", "macs")
        ]
