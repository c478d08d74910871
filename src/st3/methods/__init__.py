"""One file per method; importing this package registers them all.

The bases of methods of one's own are here as well, one per family: `ThresholdMethod` (its equations see a
`WeightView`), `MaskMethod` (it sees `MaskView`s and a `Moment`), `GroupMethod`, `LearnedThreshold`, `RandomMask`,
`SoftMask`.
`METHODS.register("name")` makes a method known by name.
"""

from typing import Any

from ..core.families.grouped import GroupMethod
from ..core.families.learned_threshold import LearnedThreshold
from ..core.families.mask_view import MaskView, Moment
from ..core.families.masked import MaskMethod
from ..core.families.random_mask import RandomMask
from ..core.families.raw import WeightView
from ..core.families.soft_mask import SoftMask
from ..core.families.thresholded import ThresholdMethod
from ..core.method import METHODS, Method
from ..registry import import_siblings, unknown_name

__all__ = [
    "METHODS",
    "GroupMethod",
    "LearnedThreshold",
    "MaskMethod",
    "MaskView",
    "Method",
    "Moment",
    "RandomMask",
    "SoftMask",
    "ThresholdMethod",
    "WeightView",
]
__all__ += import_siblings(__name__, __path__, globals())


def __getattr__(name: str) -> Any:
    raise unknown_name(__name__, name, __all__)
