"""Train any PyTorch network to 80-99 % sparsity in a single training cycle.

>>> import torch, st3
>>> model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
>>> sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=100)
>>> for _ in range(100):
...     x = torch.randn(32, 32)
...     loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
...     loss.backward()
...     optimizer.step()
...     optimizer.zero_grad()
>>> print(f"{st3.report(sparsifier.finalize()).sparsity:.2f}")
0.80
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import allocations, errors, methods, ramps
from .core.batch_norm import reestimate_batch_norm
from .core.layers.find import layers
from .core.layers.patterns import FIRST, LAST, USUAL
from .core.report import report
from .core.sparsifier import Sparsifier
from .core.sparsify import keep_mask, sparsify
from .files.loading import load_sparse
from .files.onnx_file import export_onnx
from .files.program_file import export_program
from .files.sparse import save_sparse

if TYPE_CHECKING:
    from . import engine

__all__ = [
    "FIRST",
    "LAST",
    "USUAL",
    "Sparsifier",
    "allocations",
    "engine",
    "errors",
    "export_onnx",
    "export_program",
    "keep_mask",
    "layers",
    "load_sparse",
    "methods",
    "ramps",
    "reestimate_batch_norm",
    "report",
    "save_sparse",
    "sparsify",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the engine when it is first asked for: training does without it."""
    if name == "engine":
        return importlib.import_module(".engine", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
