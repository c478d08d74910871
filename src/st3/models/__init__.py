"""The networks of the paper and a small GPT, as plain `nn.Module`s that know nothing about sparsity.

Every module beside this file is imported, so a new network is one new file that registers itself.
"""

import importlib
import pkgutil

from .catalogue import MODELS

__all__ = ["MODELS"]

for _sibling in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_sibling.name}")
