"""Labelled pictures and text in whole batches: digits and a book (parts of the package), CIFAR, ImageNet, your own.

Every module beside this file is imported, so a new data set is one new file that registers itself.
"""

import importlib
import pkgutil

from .batches import Batches
from .catalogue import DATASETS
from .errors import DataError
from .examples import Examples, Splits
from .pictures import Pictures

__all__ = ["DATASETS", "Batches", "DataError", "Examples", "Pictures", "Splits"]

for _sibling in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_sibling.name}")
