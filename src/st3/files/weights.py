"""A model's weights as a plain safetensors file, with what is needed to rebuild the model beside them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from .whole import write_whole

__all__ = ["WeightsError", "import_safetensors", "read_weights", "write_weights"]

KEY = "st3"  # safetensors metadata holds strings only; ours is one JSON text


class WeightsError(ValueError):
    """A file that holds no weights, or damaged ones."""


def import_safetensors() -> Any:
    """Return the module `safetensors` with its part for torch; it is not needed to import st3."""
    try:
        import safetensors.torch
    except ImportError:
        raise ImportError(
            "files of weights need safetensors: pip install safetensors, or 'st3[train]'"
        ) from None
    return safetensors


def write_weights(path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write `weights` under their names; the file appears complete, or not at all."""
    save = import_safetensors().torch.save
    seen: dict[tuple[int, int, tuple[int, ...]], str] = {}
    plain = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().cpu()
        plain[name] = (
            tensor.clone() if (tensor.data_ptr(), tensor.numel(), tuple(tensor.shape)) in seen else tensor
        )
        plain[name] = plain[name].contiguous()  # tied weights are written twice: the reader needs no model
        seen[tensor.data_ptr(), tensor.numel(), tuple(tensor.shape)] = name
    content = save(plain, metadata={KEY: json.dumps(metadata)})
    write_whole(path, lambda file: file.write(content))


def read_weights(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Return the weights and the metadata of a safetensors file, ours or another's (then usually an empty table)."""
    safetensors = import_safetensors()
    if not path.is_file():
        raise WeightsError(f"there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = (file.metadata() or {}).get(KEY, "{}")
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except (safetensors.SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is no safetensors file, or a damaged one ({error})") from None
    try:
        return weights, json.loads(metadata)
    except ValueError:
        return weights, metadata  # somebody else's idea of our key: whoever asks is told
