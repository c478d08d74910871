"""From a spec to the things that train: network, method, data, wrapped model, sparsifier."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..core.attach import sparsify
from ..core.method import METHODS, Method
from ..core.patterns import FIRST, LAST
from ..core.sparsifier import Sparsifier
from ..data import DATASETS, Splits
from ..models import MODELS
from ..training.process import Process
from ..training.sections import SettingsError
from ..training.synced_norm import synchronise_norms
from .spec import DataSpec, ModelSpec, SparseSpec, Spec

__all__ = ["build_model", "build_sparsifier", "build_splits", "check_scores", "wrap"]


def build_splits(spec: DataSpec) -> Splits:
    """Return the data set, read from its directory."""
    directory = None if spec.dir is None else Path(spec.dir).expanduser()
    make = DATASETS[spec.name]
    _check_arguments(make, spec.options, f"data set {spec.name!r}", given={"directory", "download"})
    return make(directory, download=spec.download, **spec.options)


def build_model(spec: ModelSpec, classes: int, channels: int) -> nn.Module:
    """Return the network for so many classes and input channels, if it takes these arguments.

    The name is one of the catalogue or `package.module:function`; modules of the current folder are found.
    """
    if spec.name.startswith("<"):
        raise SettingsError(
            "model", [f"{spec.name} was handed over in Python: name what builds it, module:function"]
        )
    make = _imported(spec.name) if ":" in spec.name else MODELS[spec.name]
    given = {"classes": classes, "channels": channels, **spec.arguments}
    _check_arguments(make, spec.arguments, f"model {spec.name!r}", given=set())
    takes = inspect.signature(make).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        given = {name: value for name, value in given.items() if name in takes}
    model = make(**given)
    if not isinstance(model, nn.Module):
        raise SettingsError("model", [f"{spec.name!r} returned a {type(model).__name__}, not an nn.Module"])
    return model


def check_scores(model: nn.Module, name: str, splits: Splits) -> None:
    """Raise unless the model gives one score per class for a picture of this data set; before the first batch."""
    was_training = model.training
    try:
        with torch.no_grad():
            scores = model.eval()(torch.zeros(2, *splits.shape))
    except Exception as error:
        shape = "x".join(map(str, splits.shape))
        raise SettingsError(
            "model", [f"{name!r} cannot take pictures of {splits.name!r} ({shape}): {error}"]
        ) from error
    finally:
        model.train(was_training)
    expected = (2, len(splits.classes))
    found = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if found != expected:
        raise SettingsError(
            "model",
            [
                f"{name!r} answers 2 pictures with {found}, but {splits.name!r} has {expected[1]} classes: {expected}"
            ],
        )


def wrap(model: nn.Module, spec: Spec, process: Process) -> nn.Module:
    """Return the model on its device, in its memory format, spread over the processes, compiled: as asked."""
    model = model.to(process.device)
    if spec.machine.channels_last and not spec.machine.sharded:  # fully_shard takes contiguous weights only
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if process.ranks > 1:
        model = synchronise_norms(model, process.device)
    if spec.machine.sharded:
        model = _sharded(model, process)
    elif process.ranks > 1:
        ids = [process.device.index] if process.device.type == "cuda" else None
        model = nn.parallel.DistributedDataParallel(model, device_ids=ids)
    return torch.compile(model) if spec.machine.compile else model  # type: ignore[return-value]


def build_sparsifier(
    spec: Spec, model: nn.Module, optimizer: Optimizer, steps_per_epoch: int
) -> Sparsifier | None:
    """Return what makes the model sparse; None if it is to stay dense."""
    sparse, recipe = spec.sparse, spec.recipe
    if sparse.is_dense:
        return None
    ends = {"first": FIRST, "last": LAST}
    return sparsify(
        model,
        optimizer,
        sparsity=sparse.sparsity,
        total_steps=recipe.epochs * steps_per_epoch,
        start=round(recipe.ramp.start * steps_per_epoch),
        end=round(recipe.ramp.end * steps_per_epoch),
        method=build_method(sparse),
        allocation=sparse.allocation,
        ramp=sparse.ramp,
        exclude=list(sparse.exclude),
        keep_dense=[ends.get(name, name) for name in sparse.keep_dense],
        min_weights=sparse.min_weights,
    )


def build_method(spec: SparseSpec) -> Method:
    make = METHODS[spec.method]
    _check_arguments(make, spec.arguments, f"method {spec.method!r}", given=set())
    return make(**spec.arguments)


def _sharded(model: nn.Module, process: Process) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(process.device.type, (process.ranks,))
    for child in model.children():  # so that not all of them are whole at the same time
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module_name), function)
    except ModuleNotFoundError as error:
        raise SettingsError(
            "model", [f"{name!r}: no module {error.name!r} here or on Python's path"]
        ) from None
    except AttributeError:
        raise SettingsError("model", [f"{name!r}: module {module_name!r} has no {function!r}"]) from None
    if not callable(made):
        raise SettingsError(
            "model", [f"{name!r} is a {type(made).__name__}, not a function that makes a network"]
        )
    return made  # type: ignore[no-any-return]


def _check_arguments(
    make: Callable[..., Any], arguments: Mapping[str, Any], what: str, given: set[str]
) -> None:
    takes = inspect.signature(make).parameters
    if any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return
    known = [name for name in takes if name not in given]
    if strange := [name for name in arguments if name not in known]:
        raise SettingsError(
            what, [f"takes no argument {', '.join(map(repr, strange))} (known: {', '.join(known)})"]
        )
