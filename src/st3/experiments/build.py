"""Build what a spec names: data, network, wrapped model, method, sparsifier."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..core.budget.allocation import ALLOCATIONS
from ..core.method import METHODS, Method
from ..core.sparsifier import Sparsifier
from ..core.sparsify import sparsify
from ..data import DATASETS, Splits
from ..models import MODELS
from ..training.process import Process
from ..training.scores import class_scores
from ..training.sections import SettingsError
from ..training.synced_norm import synchronise_norms
from ..training.tasks import TASKS, Task
from .arguments import (
    add_sizes,
    argument_faults,
    missing_arguments,
    object_faults,
    takes_classes,
)
from .checks import file_faults
from .messages import quote_error
from .own_function import import_function
from .sparse_choices import choose_ramp
from .spec import DataSpec, ModelSpec, SparseSpec, Spec

__all__ = [
    "build_method",
    "build_model",
    "build_model_for",
    "build_sparsifier",
    "build_splits",
    "check_scores",
    "wrap",
]


def build_splits(spec: DataSpec) -> Splits:
    """Read the data set from its folder."""
    read = DATASETS[spec.name]
    taken = ("directory", "download")
    faults = argument_faults(read, spec.options, f"data set {spec.name!r}", taken)
    _refuse("data", [*file_faults(spec), *faults])
    if DATASETS.declaration(spec.name).embedded:
        return read(**spec.options)
    directory = None if spec.dir is None else Path(os.path.expanduser(spec.dir))
    return read(directory, download=spec.download, **spec.options)


def build_model_for(spec: ModelSpec, splits: Splits) -> nn.Module:
    """Build the network for a data set."""
    return build_model(spec, TASKS[splits.task], len(splits.classes), splits.shape[0])


def build_model(spec: ModelSpec, task: Task, classes: int, size: int) -> nn.Module:
    """Build the network, for that many classes and inputs of that first size if it has arguments for them.

    The name is one of the catalogue or `package.module:function`; modules in the current folder are found.
    """
    if spec.name.startswith("<"):
        raise SettingsError(
            "model",
            [
                f"{spec.name} was an object in Python: name the function that builds it, --model module:function"
            ],
        )
    make = import_function(spec.name) if ":" in spec.name else MODELS[spec.name]
    _refuse("model", argument_faults(make, spec.arguments, f"{spec.name!r}"))
    given = add_sizes(make, spec.arguments, task, classes, size)
    missing = missing_arguments(make, given)
    _refuse("model", [f"{spec.name!r} needs {name!r}: --set model.arguments.{name}=..." for name in missing])
    try:
        model = make(**given)
    except Exception as error:
        reason = f"{type(error).__name__}: {quote_error(error)}"
        raise SettingsError("model", [f"{spec.name!r} cannot be built; it raised {reason}"]) from error
    if not isinstance(model, nn.Module):
        raise SettingsError("model", [f"{spec.name!r} returned a {type(model).__name__}, not an nn.Module"])
    return model


def check_scores(model: nn.Module, name: str, splits: Splits) -> None:
    """Raise unless the model has something to train and returns a score per class for every prediction of the task."""
    task = TASKS[splits.task]
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SettingsError("model", [f"{name!r} has no trainable parameters"])
    was_training = model.training
    try:
        with torch.no_grad():
            scores = class_scores(model.eval()(task.blank(2, splits.shape)))
    except Exception as error:
        shape = "x".join(map(str, splits.shape))
        raise SettingsError(
            "model",
            [f"{name!r} cannot take {task.examples} of {splits.name!r} ({shape}): {quote_error(error)}"],
        ) from error
    finally:
        model.train(was_training)
    classes = len(splits.classes)
    expected = task.output_shape(2, splits.shape, classes)
    found = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if found != expected:
        has = f"but {splits.name!r} has {classes} {task.class_words}: {expected}"
        fault = f"{name!r} returns {found} for 2 {task.examples}, {has}"
        raise SettingsError("model", [f"{fault}{_advise_on_classes(name, task, classes)}"])


def _advise_on_classes(name: str, task: Task, classes: int) -> str:
    if ":" not in name or takes_classes(import_function(name), task):
        return ""
    names = " or ".join(map(repr, task.class_names[:2]))
    return (
        f"; it has no argument {names}: add one, or give "
        f"--set model.arguments.NAME={classes} if it is called otherwise"
    )


def wrap(model: nn.Module, spec: Spec, process: Process) -> nn.Module:
    """Return the model as the machine settings ask: on its device, in its memory format, distributed, compiled."""
    model = model.to(process.device)
    if spec.machine.channels_last and not spec.machine.sharded:  # fully_shard takes contiguous weights only
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if process.ranks > 1:
        model = synchronise_norms(model, process.device)
    if spec.machine.sharded:
        model = _shard(model, process)
    elif process.ranks > 1:
        ids = [process.device.index] if process.device.type == "cuda" else None
        model = nn.parallel.DistributedDataParallel(model, device_ids=ids)
    return torch.compile(model) if spec.machine.compile else model  # type: ignore[return-value]


def build_sparsifier(
    spec: Spec, model: nn.Module, optimizer: Optimizer, steps_per_epoch: int
) -> Sparsifier | None:
    """Attach the method to model and optimizer; return None if the model stays dense."""
    sparse, recipe = spec.sparse, spec.recipe
    if sparse.is_dense:
        return None
    method = build_method(sparse)
    target: dict[str, Any] = {}
    if method.has_target:
        target = {
            "sparsity": sparse.sparsity,
            "allocation": ALLOCATIONS[sparse.allocation.name](**sparse.allocation.arguments),
            "ramp": choose_ramp(sparse.ramp.name, sparse.ramp.arguments, method, recipe),
            "block": sparse.block,
            "min_weights": sparse.min_weights,
        }
    if method.own_ramp is not None:
        del target["ramp"]  # its settings say when
    begins_sparse = spec.part is not None and spec.part.begins_sparse
    sparsifier = sparsify(
        model,
        optimizer,
        total_steps=recipe.epochs * steps_per_epoch,
        method=method,
        exclude=list(sparse.exclude),
        from_sparse=begins_sparse,
        **target,
    )
    if begins_sparse and not method.restores:
        sparsifier.freeze()  # the sparsity is constant and no weight returns, so no step needs to choose masks
    return sparsifier


def build_method(spec: SparseSpec) -> Method:
    """Build the method with its arguments."""
    make = METHODS[spec.method.name]
    _refuse("sparse", object_faults(METHODS, spec.method.name, spec.method.arguments))
    return make(**spec.method.arguments)


def _refuse(what: str, faults: list[str]) -> None:
    if faults:
        raise SettingsError(what, faults)


def _shard(model: nn.Module, process: Process) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(process.device.type, (process.ranks,))
    for part in _shardable_children(model):  # one by one, so that only one of them is gathered at a time
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _shardable_children(model: nn.Module) -> list[nn.Module]:
    """Return the children that can be sharded separately: they have a forward pass and share no parameters."""
    children: list[nn.Module] = []
    for child in model.children():
        is_list = isinstance(child, nn.ModuleList | nn.ModuleDict)
        children += child.children() if is_list else [child]
    owners = Counter(id(p) for child in children for p in child.parameters())
    own = {id(p) for p in model.parameters(recurse=False)}
    return [
        child
        for child in children
        if (found := list(child.parameters())) and all(owners[id(p)] == 1 and id(p) not in own for p in found)
    ]
