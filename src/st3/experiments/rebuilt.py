"""Build the network of a stored model again, and load its weights."""

from torch import nn

from ..files.fit import shape_text
from ..training.sections import SettingsError
from .build import build_model
from .spec import ModelSpec
from .stored_model import StoredModel, load_into

__all__ = ["rebuild"]


def rebuild(stored: StoredModel, made_by: ModelSpec, shape: tuple[int, int, int] | None) -> nn.Module:
    """Return the network in eval mode; `shape` is that of a picture (channels, height, width), if known."""
    about = stored.about.get("model", {})
    channels = about.get("channels") or (shape[0] if shape else 3)
    if shape is not None and shape[0] != channels:
        raise SettingsError(
            "--input",
            [
                f"{shape_text(shape)} has {shape[0]} channels, but the model in {stored.path} takes pictures of "
                f"{channels}"
            ],
        )
    classes = about.get("classes") or _guess_classes(stored, made_by, channels)
    return load_into(build_model(made_by, classes, channels), stored, made_by.name)


def _guess_classes(stored: StoredModel, made_by: ModelSpec, channels: int) -> int:
    """Return for how many classes the weights are: the row count in which they differ from a model for ten."""
    guess = 10
    rows = {
        stored.weights[name].shape[0]
        for name, tensor in build_model(made_by, guess, channels).state_dict().items()
        if name in stored.weights and tensor.dim() and stored.weights[name].dim() == tensor.dim()
        and stored.weights[name].shape != tensor.shape and stored.weights[name].shape[1:] == tensor.shape[1:]
    }  # fmt: skip
    return rows.pop() if len(rows) == 1 else guess
