"""A trained model read back: its weights, and what its file or the folder of its run says about it."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import name_some
from ..files.fit import disagreements
from ..files.loading import ALLOWANCE, PER_BYTE, is_sparse_file, read_sparse
from ..files.torch_file import read_torch_file
from ..files.weights import WeightsError, read_weights
from ..models import MODELS
from ..training.paths import SPEC
from ..training.sections import SettingsError
from ..training.tasks import TASKS, Task
from .about import check_metadata
from .messages import quote_error
from .results import ResultsError, Run
from .spec import DataSpec, ModelSpec, Spec, read_spec

__all__ = ["PROGRAMS", "StoredModel", "load_into", "read_stored_model"]

PROGRAMS = {"onnx": ".onnx", "pt2": ".pt2", "engine": ".st3run"}  # what is exported, but not read back
NESTED = ("state_dict", "model")  # where other programs' checkpoints keep the weights


@dataclass(frozen=True)
class StoredModel:
    """The contents of a file of weights, and what is known about its model."""

    path: Path
    weights: dict[str, Tensor]
    about: dict[str, Any]  # the metadata that a run writes into the file; empty for other files
    spec: Spec | None = None  # of the run, if the model was read from a run's folder
    is_sparse: bool = False  # whether `save_sparse` wrote it

    @property
    def model(self) -> ModelSpec | None:
        """The network, if it is known."""
        if self.spec is not None:
            return self.spec.model
        about = self.about.get("model")
        return None if about is None else ModelSpec(name=about["name"], arguments=about.get("arguments", {}))

    def made_by(self, given: str | None) -> ModelSpec | None:
        """Return the network to build: the one that the user has `given` by name, or the one that the file names.

        Anybody may have made the file, and it may name any function of any module. Such a name must come from the user.
        The folder of a run is the user's own, so its spec is trusted.
        """
        known = self.model
        if given is not None:
            return known if known is not None and known.name == given else ModelSpec(name=given)
        if known is not None and ":" in known.name and self.spec is None:
            raise SettingsError(
                str(self.path),
                [f"it names code that builds its network: if you trust that code, add --model {known.name}"],
            )
        return known

    @property
    def data(self) -> DataSpec | None:
        """The data it was trained on, if known."""
        if self.spec is not None:
            return self.spec.data
        about = self.about.get("data")
        return None if about is None else DataSpec(name=about["name"], options=about.get("options", {}))

    def data_in(self, directory: str | Path | None, name: str | None = None) -> DataSpec | None:
        """Return the data it was trained on, or others by `name`, with their files in a folder if one is given."""
        known = self.data
        if name is not None and (known is None or known.name != name):
            known = DataSpec(name=name)
        if known is None or directory is None:
            return known
        return known.model_copy(update={"dir": str(directory)})

    def task(self, made_by: ModelSpec | None) -> Task:
        """What it was trained to do: as its file says, or what its network is made for."""
        usual = (
            MODELS.inputs(made_by.name).task
            if made_by is not None and made_by.name in MODELS
            else "classification"
        )
        return TASKS[self.about.get("task", usual)]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its classes, if known."""
        names = self.about.get("data", {}).get("classes")
        return None if names is None else tuple(names)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the inputs it was trained on (channels, height, width of a picture), if known."""
        shape = self.about.get("data", {}).get("shape")
        return None if shape is None else tuple(shape)

    @property
    def layers(self) -> list[str] | None:
        """The names of the layers that were made sparse, if known."""
        names: list[str] | None = self.about.get("layers")
        return names


def read_stored_model(path: Path) -> StoredModel:
    """Read the model of a run (its folder), a safetensors file (plain or sparse), or a state_dict saved by torch."""
    if path.is_dir():
        run = Run.open(path)
        if not run.is_finished or not run.model_path.is_file():
            raise ResultsError(
                f"the run in {path} is not finished: it has no {run.model_path.name} yet; continue it: "
                f"st3 train --run {path} --resume"
            )
        return _read_safetensors(run.model_path, read_spec(path / SPEC))
    if not path.exists():
        raise WeightsError(f"there is no file or run {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return StoredModel(path, _read_state_dict(path), {})


def load_into(model: nn.Module, stored: StoredModel, name: str) -> nn.Module:
    """Load the weights into the model, for inference; all names and shapes must match."""
    try:
        model.load_state_dict(stored.weights)
    except RuntimeError as error:
        wanted, found = (
            {name: tensor.shape for name, tensor in tensors.items()}
            for tensors in (model.state_dict(), stored.weights)
        )
        faults = disagreements(wanted, found) or [quote_error(error)]
        raise WeightsError(
            f"the weights in {stored.path} do not fit model {name!r}: {'; '.join(faults)}"
        ) from None
    return model.eval()


def _read_safetensors(path: Path, spec: Spec | None = None) -> StoredModel:
    is_sparse = is_sparse_file(path)
    weights, metadata = read_sparse(path) if is_sparse else read_weights(path)
    about, faults = check_metadata(metadata)
    if faults:
        warnings.warn(
            f"some of the metadata in {path} cannot come from st3 and are ignored: {'; '.join(faults)}",
            stacklevel=2,
        )
    return StoredModel(path, weights, about, spec, is_sparse)


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        content = read_torch_file(path)
    except ValueError as error:
        if path.suffix in PROGRAMS.values():
            raise WeightsError(
                f"{path} is an exported program; give the run or the file of weights that it was exported from"
            ) from None
        raise WeightsError(
            f"{path} is neither a safetensors file nor a state_dict saved by torch, or it is damaged "
            f"({quote_error(error)})"
        ) from None
    for candidate in (content, *(content.get(key) for key in NESTED if isinstance(content, dict))):
        if (
            isinstance(candidate, dict)
            and candidate
            and all(isinstance(v, Tensor) for v in candidate.values())
        ):
            return {str(name): _dense(tensor, str(name), path) for name, tensor in candidate.items()}
    keys = (
        f" with {name_some([str(key) for key in content])}" if isinstance(content, dict) and content else ""
    )
    raise WeightsError(
        f"{path} holds a {type(content).__name__}{keys} that is not a state_dict, a name for every tensor: "
        f"save model.state_dict(), alone or under the key 'model'"
    )


def _dense(tensor: Tensor, name: str, path: Path) -> Tensor:
    if tensor.is_meta:
        raise WeightsError(
            f"{name} in {path} is a meta tensor, with a shape but no numbers: save the weights"
        )
    if tensor.numel() > ALLOWANCE + PER_BYTE * path.stat().st_size:
        raise WeightsError(
            f"{name} in {path} claims {tensor.numel():,} numbers, far more than the file can hold"
        )
    return tensor if tensor.layout is torch.strided else tensor.to_dense()
