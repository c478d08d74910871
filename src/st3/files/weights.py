"""Plain safetensors files: a model's weights under their own names, and metadata that says how to rebuild it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..atomic import write_file
from .contents import CONTENTS

__all__ = ["WeightsError", "import_safetensors", "parse_metadata", "read_weights", "write_weights"]

KEY = "st3"  # safetensors metadata are strings; ours is one JSON text under this key


class WeightsError(ValueError):
    """The file is missing, damaged, or does not hold the weights that were asked for."""


def import_safetensors() -> Any:
    """Return the `safetensors` package with its torch module; `import st3` works without it."""
    try:
        import safetensors.torch
    except ImportError:
        raise ImportError(
            "reading and writing weights needs safetensors: pip install safetensors, or 'st3[train]'"
        ) from None
    return safetensors


def write_weights(path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write `weights` under their names, atomically. Tied weights are written once per name."""
    save = import_safetensors().torch.save
    storages: set[int] = set()
    plain = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        # safetensors refuses two tensors in one storage.
        plain[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    content = save(plain, metadata={KEY: json.dumps(metadata)})
    write_file(path, lambda file: file.write(content))


def read_weights(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Return the weights and st3's metadata of a plain safetensors file; {} if another program wrote it."""
    safetensors = import_safetensors()
    if not path.is_file():
        raise WeightsError(f"there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if CONTENTS in metadata:
                raise WeightsError(
                    f"{path} is a sparse file, not plain weights: read it with st3.load_sparse"
                )
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except (safetensors.SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a safetensors file, or it is damaged ({error})") from None
    return weights, parse_metadata(metadata)


def parse_metadata(metadata: Mapping[str, str]) -> Any:
    """Return what st3 stored in a file's metadata; the text itself if it is not JSON, so that callers can report it."""
    text = metadata.get(KEY, "{}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
