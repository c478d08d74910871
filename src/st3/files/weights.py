"""Plain safetensors files: a model's weights under their own names, and metadata that says how to rebuild it.

Files of other programs have no checksum. Ours have one in their metadata, of st3's metadata and all weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..atomic import write_file
from .contents import CONTENTS, checksum

__all__ = [
    "WeightsError", "encode", "import_safetensors", "parse_metadata", "read_weights", "seal_metadata", "write_weights",
]  # fmt: skip

KEY = "st3"  # safetensors metadata are strings; ours is one JSON text under this key
CHECKSUM = "st3.checksum"


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
    storages: set[int] = set()
    plain = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        # safetensors refuses two tensors in one storage.
        plain[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    content = encode(plain, seal_metadata(metadata, plain))
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
    try:
        return weights, parse_metadata(metadata, weights)
    except ValueError as error:
        raise WeightsError(f"{path} is damaged: {error}") from None


def encode(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return a safetensors file. The same content gives the same bytes: safetensors writes metadata in any order."""
    content = import_safetensors().torch.save(dict(tensors), metadata=dict(metadata))
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(content)[end:]])


def seal_metadata(metadata: Any, weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return `metadata` as those of a safetensors file, with a checksum of them and of `weights`."""
    text = json.dumps(metadata)
    return {KEY: text, CHECKSUM: _checksum(text, weights)}


def parse_metadata(metadata: Mapping[str, str], weights: Mapping[str, Tensor]) -> Any:
    """Return what `seal_metadata` stored; the text itself if it is not JSON, so that callers can report it.

    Raise ValueError if there is a checksum, and it does not match.
    """
    text = metadata.get(KEY, "{}")
    if CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(text, weights):
        raise ValueError(
            f"its checksum does not match (a program that changes it on purpose must leave out the metadata {CHECKSUM})"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _checksum(text: str, weights: Mapping[str, Tensor]) -> str:
    names = sorted(weights)
    return checksum([text, names], (weights[name] for name in names), size=8)
