"""The data sets by name. A file of its own, because every data set imports it and `__init__` imports them."""

from collections.abc import Callable

from ..registry import Registry
from .pictures import Splits

__all__ = ["DATASETS"]

# Called as make(directory, download=False, **options of its own).
DATASETS: Registry[Callable[..., Splits]] = Registry("data set")
