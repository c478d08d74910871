"""What can go wrong, by name: every error and warning of the library."""

from .core.errors import (
    CheckpointError,
    CoverageWarning,
    LayerCollapseWarning,
    PrecisionWarning,
    TargetMissedError,
    WeightsReplacedError,
)
from .files.loading import SparseFileError
from .files.tracing import ExportError

__all__ = [
    "CheckpointError",
    "CoverageWarning",
    "ExportError",
    "LayerCollapseWarning",
    "PrecisionWarning",
    "SparseFileError",
    "TargetMissedError",
    "WeightsReplacedError",
]
