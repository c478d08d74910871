"""Protocols: which parts a run has. One file each; importing this package registers them all."""

import importlib
import pkgutil

from .protocol import PROTOCOLS, Part, PartSpec, Protocol, ProtocolSpec

__all__ = ["PROTOCOLS", "Part", "PartSpec", "Protocol", "ProtocolSpec"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
