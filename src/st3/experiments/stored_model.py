"""A trained model read back: its weights, and what the file or the folder of its run says about it."""

import pickle
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files.fit import disagreements
from ..files.loading import is_sparse_file, read_sparse
from ..files.weights import WeightsError, read_weights
from ..training.sections import SettingsError
from .about import understood
from .messages import passed_on
from .results import ResultsError, Run
from .spec import DataSpec, ModelSpec, Spec, read_spec

__all__ = ["StoredModel", "load_into", "read_stored_model"]

NESTED = ("state_dict", "model")  # where other programs' checkpoints keep the weights


@dataclass(frozen=True)
class StoredModel:
    """What is in a file of weights, and beside it."""

    path: Path
    weights: dict[str, Tensor]
    about: dict[str, Any]  # the metadata that a run writes into the file; empty for other files
    spec: Spec | None = None  # of the run, if a run was named
    is_sparse: bool = False  # whether it is a file of save_sparse

    @property
    def model(self) -> ModelSpec | None:
        """How to build the network again, if that is known."""
        if self.spec is not None:
            return self.spec.model
        about = self.about.get("model")
        return None if about is None else ModelSpec(name=about["name"], arguments=about.get("arguments", {}))

    def made_by(self, given: str | None) -> ModelSpec | None:
        """Return how to build the network: by the name that the user has `given`, or as the file says.

        A file may name any function of any module, and whoever made the file may be anybody: such a name is taken
        from the user alone. The folder of a run is the user's own, and its spec is believed.
        """
        known = self.model
        if given is not None:
            return known if known is not None and known.name == given else ModelSpec(name=given)
        if known is not None and ":" in known.name and self.spec is None:
            raise SettingsError(
                str(self.path),
                [f"it names code to build its network with: if you trust it, say --model {known.name}"],
            )
        return known

    @property
    def data(self) -> DataSpec | None:
        """What it was trained on, if that is known."""
        if self.spec is not None:
            return self.spec.data
        about = self.about.get("data")
        return None if about is None else DataSpec(name=about["name"], options=about.get("options", {}))

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes it tells apart, if they are known."""
        names = self.about.get("data", {}).get("classes")
        return None if names is None else tuple(names)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """The shape of the pictures it was trained on (channels, height, width), if that is known."""
        shape = self.about.get("data", {}).get("shape")
        return None if shape is None else tuple(shape)

    @property
    def layers(self) -> list[str] | None:
        """The names of the layers that were made sparse, if that is known."""
        names: list[str] | None = self.about.get("layers")
        return names


def read_stored_model(path: Path) -> StoredModel:
    """Read the model of a run (its folder), a safetensors file (plain or sparse), or a state_dict saved by torch."""
    if path.is_dir():
        run = Run.open(path)
        file = path / str(
            (run.summary or {}).get("model") or "model.safetensors"
        )  # in cycles: the last one's
        if not run.is_finished or not file.is_file():
            raise ResultsError(
                f"the run in {path} is not finished: it has no {file.name} yet; go on with it: "
                f"st3 train --run {path} --resume"
            )
        return _read_safetensors(file, read_spec(path / "spec.json"))
    if not path.exists():
        raise WeightsError(f"there is no file or run {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return StoredModel(path, _read_state_dict(path), {})


def load_into(model: nn.Module, stored: StoredModel, name: str) -> nn.Module:
    """Put the weights into the model, for inference; all names and shapes must agree."""
    try:
        model.load_state_dict(stored.weights)
    except RuntimeError as error:
        wanted, found = (
            {name: tensor.shape for name, tensor in tensors.items()}
            for tensors in (model.state_dict(), stored.weights)
        )
        faults = disagreements(wanted, found) or [passed_on(error)]
        raise WeightsError(
            f"the weights in {stored.path} are not those of model {name!r}: {'; '.join(faults)}"
        ) from None
    return model.eval()


def _read_safetensors(path: Path, spec: Spec | None = None) -> StoredModel:
    is_sparse = is_sparse_file(path)
    weights, metadata = read_sparse(path) if is_sparse else read_weights(path)
    about, strange = understood(metadata)
    if strange:
        warnings.warn(
            f"the metadata in {path} are not what st3 writes ({'; '.join(strange)}): these are left aside",
            stacklevel=2,
        )
    return StoredModel(path, weights, about, spec, is_sparse)


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        # Only tensors and plain containers: a pickle that would run code is refused.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise WeightsError(
            f"{path} is neither a safetensors file nor a state_dict saved by torch, or it is damaged "
            f"({passed_on(error)})"
        ) from None
    for candidate in (content, *(content.get(key) for key in NESTED if isinstance(content, dict))):
        if (
            isinstance(candidate, dict)
            and candidate
            and all(isinstance(v, Tensor) for v in candidate.values())
        ):
            return {str(name): _dense(tensor) for name, tensor in candidate.items()}
    raise WeightsError(f"{path} holds a {type(content).__name__}, but no state_dict: a name for every tensor")


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()
