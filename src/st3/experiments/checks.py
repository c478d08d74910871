"""Check a spec beyond the types of its values: names, arguments, contradictions."""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import choices
from ..core.budget.ramp import RAMPS
from ..core.method import METHODS
from ..data import DATASETS
from ..models import MODELS
from ..registry import Registry
from ..training.sections import SettingsError
from .arguments import argument_faults, build_or_none, default_arguments, object_faults, value_faults
from .own_function import name_fault
from .protocols import PROTOCOLS
from .sparse_choices import CHOICES, name_and_arguments

if TYPE_CHECKING:
    from .spec import DataSpec, SparseSpec, Spec

__all__ = [
    "DENSE",
    "check_device",
    "check_input",
    "contradictions",
    "file_faults",
    "name_faults",
    "processor_faults",
    "table",
]

DENSE = "dense"  # no sparsity
PER_PROCESSOR = 8  # workers or threads: more would only wait for each other
MOST_NUMBERS = 2**28  # in the input of a network: 1 GiB


def check_device(name: str) -> str:
    """Return the name of a device that runs can be trained on; whether it exists shows when it is used."""
    kind, colon, number = name.partition(":")
    if name in ("auto", "cpu", "cuda") or (kind == "cuda" and colon and number.isdecimal()):
        return name
    raise ValueError(f"unknown device {name!r}; try auto, cpu, cuda or cuda:1")


def table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the table of that name; an empty one if the value is not a table."""
    inner = values.get(name)
    return inner if isinstance(inner, dict) else {}


def name_faults(values: Mapping[str, Any]) -> list[str]:
    """Look up every name and check its arguments. Values of a wrong type are left to validation."""
    sparse = table(values, "sparse")
    return [
        *_data_faults(table(values, "data")),
        *_model_faults(table(values, "model")),
        *(fault for key in CHOICES for fault in _choice_faults(key, sparse)),
        *_protocol_faults(table(values, "protocol")),
    ]


def contradictions(spec: "Spec") -> list[str]:
    """Return which settings contradict each other."""
    faults = []
    if spec.part is not None:
        faults.append(f"this is {spec.part.title} of a larger run: resume that run, in the folder above")
    if spec.sparse.is_dense and spec.sparse.sparsity:
        faults.append(f"method 'dense' with sparsity {spec.sparse.sparsity:g}: leave one of them out")
    if spec.sparse.is_dense and spec.sparse.block > 1:
        faults.append(f"method 'dense' with block {spec.sparse.block}: leave one of them out")
    protocol = build_or_none(PROTOCOLS, spec.protocol.name, spec.protocol.arguments)
    faults += [] if protocol is None else protocol.faults(spec)  # None: reported by name_faults
    if not spec.sparse.is_dense:
        faults += _misfits(spec.sparse)
    if spec.machine.precision == "float16" and spec.machine.device == "cpu":
        faults.append("precision float16 needs a CUDA device; on a CPU use bfloat16")
    if spec.record.switch_windows and spec.machine.sharded:
        faults.append("record.switch_windows needs whole weights: leave it out, or train without sharding")
    if spec.record.switch_windows > spec.recipe.total_epochs:
        faults.append(
            f"record.switch_windows is {spec.record.switch_windows}, but the run has {spec.recipe.total_epochs} epochs"
        )
    for name, number in (("workers", spec.machine.workers), ("threads", spec.machine.threads or 1)):
        faults += processor_faults(f"machine.{name}", number)
    return faults + file_faults(spec.data)


def check_input(shape: tuple[int, ...] | None, batch: int = 1) -> None:
    """Raise if a batch of inputs of this shape would have more numbers than a network could be run on."""
    if shape is not None and batch * math.prod(shape) > MOST_NUMBERS:
        size = "x".join(map(str, (shape if batch == 1 else (batch, *shape))))
        raise SettingsError("--input", [f"{size} is over {MOST_NUMBERS:,} numbers: take a smaller input"])


def processor_faults(name: str, number: int) -> list[str]:
    """Return what is wrong if so many processes or threads are asked of this machine."""
    processors = os.cpu_count() or 1
    if number <= PER_PROCESSOR * processors:
        return []
    return [
        f"{name} is {number}, but this machine has {processors} processors: take at most {PER_PROCESSOR * processors}"
    ]


def file_faults(data: "DataSpec") -> list[str]:
    """Return what is wrong if files are named for a data set that needs none."""
    options = [
        option
        for option, is_given in (("--data-dir", data.dir is not None), ("--download", data.download))
        if is_given
    ]
    if not options or data.name not in DATASETS or not DATASETS.declaration(data.name).embedded:
        return []
    others = ", ".join(name for name in DATASETS if not DATASETS.declaration(name).embedded)
    return [
        f"data set {data.name!r} needs no files: leave out {' and '.join(options)}, or name another --data ({others})"
    ]


def _misfits(sparse: "SparseSpec") -> list[str]:
    """Return which settings mean nothing to the method."""
    if sparse.method.name not in METHODS:
        return []  # reported by name_faults, as are wrong arguments
    chosen = build_or_none(METHODS, sparse.method.name, sparse.method.arguments)
    method, name = (
        METHODS[sparse.method.name]() if chosen is None else chosen,
        f"method {sparse.method.name!r}",
    )
    if not method.has_target:
        found = {"sparsity": sparse.sparsity, "min_weights": sparse.min_weights or None}
        found["block"] = None if sparse.block == 1 else sparse.block
        for key, usual in (("allocation", method.usual_allocation), ("ramp", method.usual_ramp)):
            choice = getattr(sparse, key)
            found[key] = choice if choice.name != usual or choice.arguments else None
        given = [key for key, value in found.items() if value is not None]
        reason = f"{name} learns its thresholds, so that no sparsity can be asked of it"
        return [f"{reason}: leave {', '.join(given)} out"] if given else []
    missing = [f"{name} needs a sparsity"] if sparse.sparsity is None else []
    ramp = build_or_none(RAMPS, sparse.ramp.name, sparse.ramp.arguments) if sparse.ramp.arguments else None
    return missing + choices.find_contradictions(
        method,
        sparsity=None if chosen is None else sparse.sparsity,
        allocation=sparse.allocation.name,
        ramp=ramp or sparse.ramp.name,
        block=sparse.block,
        has_floor=sparse.min_weights > 0,
    )


def _data_faults(data: Mapping[str, Any]) -> list[str]:
    name, options = data.get("name"), table(data, "options")
    if faults := _unknown(DATASETS, name):
        return faults
    return _faults(DATASETS, name, options, "data set", taken=("directory", "download"))


def _model_faults(model: Mapping[str, Any]) -> list[str]:
    """Check the network: of the catalogue, any `package.module:function`, or `<Class>`, an object given in Python."""
    name = model.get("name")
    if not isinstance(name, str) or name.startswith("<"):
        return []
    if ":" in name:
        fault = name_fault(name)
        return [f"model {fault}"] if fault else []
    return _unknown(MODELS, name) or _faults(MODELS, name, table(model, "arguments"), "model")


def _choice_faults(key: str, sparse: Mapping[str, Any]) -> list[str]:
    """Check the method, ramp or allocation of a spec."""
    name, arguments = name_and_arguments(sparse, key)
    if key == "method" and name == DENSE:
        return [f"method 'dense' takes no argument {argument!r}" for argument in arguments]
    if not isinstance(name, str):
        return []
    return _unknown(CHOICES[key], name) or object_faults(CHOICES[key], name, arguments)


def _protocol_faults(protocol: Mapping[str, Any]) -> list[str]:
    name, arguments = protocol.get("name", "single"), table(protocol, "arguments")
    if not isinstance(name, str):
        return []
    if faults := _unknown(PROTOCOLS, name):
        return faults
    for key in arguments:
        owners = [other for other in PROTOCOLS if key in default_arguments(PROTOCOLS[other])]
        if owners and name not in owners:
            return [
                f"{key} is an argument of protocol {owners[0]!r}, not of {name!r}: add --protocol {owners[0]}"
            ]
    return object_faults(PROTOCOLS, name, arguments)


def _faults(
    registry: Registry[Any], name: Any, arguments: Mapping[str, Any], kind: str, taken: tuple[str, ...] = ()
) -> list[str]:
    if not isinstance(name, str):
        return []
    make, what = registry[name], f"{kind} {name!r}"
    return [*argument_faults(make, arguments, what, taken), *value_faults(make, arguments, what)]


def _unknown(registry: Registry[Any], name: Any) -> list[str]:
    try:
        if isinstance(name, str):
            registry[name]
    except LookupError as error:
        return [str(error.args[0])]
    return []
