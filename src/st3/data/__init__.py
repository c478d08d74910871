"""Labelled pictures in whole batches: digits (part of the package), CIFAR, Fashion-MNIST, ImageNet, your own folders.

Every module beside this file is imported, so a new data set is one new file that registers itself.
"""

import importlib
import pkgutil

from .batches import Batches
from .catalogue import DATASETS
from .errors import DataError
from .pictures import Pictures, Splits

__all__ = ["DATASETS", "Batches", "DataError", "Pictures", "Splits"]

for _sibling in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_sibling.name}")
