"""The network of a stored model, built again from what its file says and filled with its weights."""

from torch import nn

from ..training.sections import SettingsError
from .build import build_model
from .inspection import _classes
from .spec import ModelSpec
from .stored_model import StoredModel, load_into

__all__ = ["rebuild"]


def rebuild(stored: StoredModel, made_by: ModelSpec, shape: tuple[int, int, int] | None) -> nn.Module:
    """Return the network in eval mode; `shape` is that of a picture (channels, height, width), if it is known."""
    about = stored.about.get("model", {})
    channels = about.get("channels") or (shape[0] if shape else 3)
    if shape is not None and shape[0] != channels:
        text = "x".join(map(str, shape))
        raise SettingsError(
            "--input",
            [f"{text} has {shape[0]} channels, but the model in {stored.path} takes pictures of {channels}"],
        )
    classes = about.get("classes") or _classes(stored, made_by, channels)
    return load_into(build_model(made_by, classes, channels), stored, made_by.name)
