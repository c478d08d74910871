"""What can go wrong, by name. Each is raised with one sentence: what was asked, what was found, what to do."""

__all__ = ["CheckpointError", "LayerCollapseWarning", "TargetMissedError", "WeightsReplacedError"]


class TargetMissedError(RuntimeError):
    """The model holds fewer zeros than were asked for."""


class WeightsReplacedError(RuntimeError):
    """Weights were changed behind the sparsifier's back, and their raw weights were not."""


class CheckpointError(RuntimeError):
    """A checkpoint lacks raw weights, or they belong to another model."""


class LayerCollapseWarning(UserWarning):
    """A layer or filter has lost its last weight."""
