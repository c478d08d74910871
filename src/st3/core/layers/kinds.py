"""Which weights are linear maps, and where their outputs and inputs lie."""

from collections.abc import Sequence

from torch import Tensor, nn

from .filters import Filters
from .places import Place

__all__ = ["filters_of", "inputs_of", "why_embedding", "why_unusual"]

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.Bilinear)
_EXPERT_WEIGHTS = ("gate_up_proj", "up_proj", "down_proj")
_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def why_embedding(places: Sequence[Place]) -> str | None:
    """Return in what way a weight is an embedding; None if it is not."""
    if not any(isinstance(place.module, nn.Embedding | nn.EmbeddingBag) for place in places):
        return None
    return "an embedding" if len(places) == 1 else "tied to an embedding"


def why_unusual(parameter: Tensor, place: Place) -> str | None:
    """Return why a weight is not covered unless `include` names it; None if it is known to be a linear map."""
    kind = type(place.module).__name__
    if _is_expert_weight(place.module, parameter):
        if _expert_outputs(place) is not None:
            return None
        return (
            f"{kind} does not say which axis holds the outputs (include it if it is expert x output x input)"
        )
    if _is_linear(place):
        return None
    return f"{kind} is not covered by default (include its name or type)"


def filters_of(parameter: Tensor, place: Place) -> Filters:
    """Return where the weight keeps its filters."""
    if isinstance(place.module, _TRANSPOSED):
        return Filters(axis=1, groups=place.module.groups)
    if _is_hugging_face_conv1d(place.module):
        return Filters(axis=1)
    if _is_expert_weight(place.module, parameter):
        return Filters(axis=_expert_outputs(place) or 1, experts=True)
    return Filters()


def inputs_of(parameter: Tensor, place: Place) -> int | None:
    """Return the axis along which the inputs of a filter lie, if there is exactly one."""
    module = place.module
    if isinstance(module, _TRANSPOSED) or _is_hugging_face_conv1d(module):
        return 0
    if _is_expert_weight(module, parameter):
        return 3 - (_expert_outputs(place) or 1)
    if isinstance(module, nn.Bilinear):
        return None  # every output has two of them
    is_plain = isinstance(module, (*_PLAIN, nn.MultiheadAttention)) or _is_pyg_linear(module)
    return 1 if is_plain else None


def _is_linear(place: Place) -> bool:
    module = place.module
    if isinstance(module, nn.MultiheadAttention):
        return place.key in _ATTENTION
    return place.key == "weight" and (
        isinstance(module, _PLAIN + _TRANSPOSED) or _is_hugging_face_conv1d(module) or _is_pyg_linear(module)
    )


# The following are known by name, so that their packages need not be imported. All bases are looked at: fully_shard
# makes an FSDPConv1D of a Conv1D.


def _is_hugging_face_conv1d(module: nn.Module) -> bool:
    """Whether it is a linear layer whose weight is (inputs, outputs)."""
    weight = module._parameters.get("weight")
    is_named = any(cls.__name__ == "Conv1D" for cls in type(module).__mro__)
    return is_named and hasattr(module, "nf") and weight is not None and weight.dim() == 2


def _is_pyg_linear(module: nn.Module) -> bool:
    """Whether it is PyTorch Geometric's Linear, which is not an nn.Linear but stores its weight like one."""
    weight = module._parameters.get("weight")
    sizes = (getattr(module, "out_channels", None), getattr(module, "in_channels", None))
    is_named = any(cls.__name__ == "Linear" for cls in type(module).__mro__)
    return is_named and weight is not None and tuple(weight.shape) == sizes


def _is_expert_weight(module: nn.Module, parameter: Tensor) -> bool:
    """Whether the weight holds the matrices of all experts of a mixture, one after another along axis 0."""
    return parameter.dim() == 3 and any(cls.__name__.endswith("Experts") for cls in type(module).__mro__)


def _expert_outputs(place: Place) -> int | None:
    """Return the axis of an expert's outputs, None if nothing tells.

    transformers marks its experts `is_transposed`. Without that mark the shapes of a gated pair tell: gate_up_proj maps
    a token to twice the width that down_proj maps back.
    """
    if place.key not in _EXPERT_WEIGHTS:
        return None
    if isinstance(is_transposed := getattr(place.module, "is_transposed", None), bool):
        return 2 if is_transposed else 1
    up, down = (place.module._parameters.get(key) for key in ("gate_up_proj", "down_proj"))
    if up is None or down is None:
        return None
    _, *up_shape = up.shape
    _, *down_shape = down.shape
    if up_shape == [2 * down_shape[-1], down_shape[0]]:
        return 1
    if up_shape == [down_shape[-1], 2 * down_shape[0]]:
        return 2
    return None
