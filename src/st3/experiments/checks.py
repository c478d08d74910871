"""What a spec can be found wrong with beyond the types of its values: names, arguments, contradictions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import choices
from ..core.budget.allocation import ALLOCATIONS
from ..core.method import METHODS
from ..core.budget.ramp import RAMPS
from ..data import DATASETS
from ..models import MODELS
from ..registry import Registry
from .arguments import argument_faults, method_faults, method_of, value_faults
from .cycles import cycle_faults
from .own_function import name_fault

if TYPE_CHECKING:
    from .spec import DataSpec, SparseSpec, Spec

__all__ = ["DENSE", "check_device", "contradictions", "file_faults", "name_faults", "table"]

DENSE = "dense"  # the method that is none


def check_device(name: str) -> str:
    """Return the name of a device that runs can be trained on; whether it is there shows when it is used."""
    kind, colon, number = name.partition(":")
    if name in ("auto", "cpu", "cuda") or (kind == "cuda" and colon and number.isdecimal()):
        return name
    raise ValueError(f"unknown device {name!r}; try auto, cpu, cuda or cuda:1")


def table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return that table of the values; an empty one if there is something else in its place."""
    inner = values.get(name)
    return inner if isinstance(inner, dict) else {}


def name_faults(values: Mapping[str, Any]) -> list[str]:
    """Look up every name, and check the arguments that go with it. Values of a wrong type are not looked at."""
    sparse = table(values, "sparse")
    faults = [
        *_unknown(ALLOCATIONS, sparse.get("allocation", "global")),
        *_unknown(RAMPS, sparse.get("ramp", "cubic")),
    ]
    return [
        *_data_faults(table(values, "data")),
        *_model_faults(table(values, "model")),
        *_method(sparse),
        *faults,
    ]


def contradictions(spec: "Spec") -> list[str]:
    """Return what cannot be done together."""
    faults = []
    if spec.sparse.is_dense and spec.sparse.sparsity:
        faults.append(f"method 'dense' with sparsity {spec.sparse.sparsity:g}: leave one of them out")
    if spec.sparse.is_dense and spec.dense_twin:
        faults.append("method 'dense' needs no dense twin")
    faults += cycle_faults(spec)
    if not spec.sparse.is_dense:
        faults += _misfits(spec.sparse)
    if spec.machine.precision == "float16" and spec.machine.device == "cpu":
        faults.append("precision float16 needs a CUDA device; on a CPU use bfloat16")
    return faults + file_faults(spec.data)


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
    """Return what a method of the catalogue cannot be asked for."""
    if sparse.method not in METHODS:
        return []  # told by those who check names
    chosen, name = method_of(sparse.method, sparse.arguments), f"method {sparse.method!r}"
    method = (
        METHODS[sparse.method]() if chosen is None else chosen
    )  # what is wrong with its arguments is told elsewhere
    if not method.has_target:
        usual = {"sparsity": None, "allocation": method.usual_allocation, "ramp": method.usual_ramp}
        given = [key for key, value in {**usual, "min_weights": 0}.items() if getattr(sparse, key) != value]
        reason = f"{name} learns its thresholds, so that no sparsity can be asked of it"
        return [f"{reason}: leave {', '.join(given)} out"] if given else []
    missing = [f"{name} needs a sparsity"] if sparse.sparsity is None else []
    return missing + choices.contradictions(
        method,
        sparsity=None if chosen is None else sparse.sparsity,
        allocation=sparse.allocation,
        ramp=sparse.ramp,
        has_floor=sparse.min_weights > 0,
    )


def _data_faults(data: Mapping[str, Any]) -> list[str]:
    name, options = data.get("name"), table(data, "options")
    if faults := _unknown(DATASETS, name):
        return faults
    return _faults(DATASETS, name, options, "data set", taken=("directory", "download"))


def _model_faults(model: Mapping[str, Any]) -> list[str]:
    """A network may be any `package.module:function`, or `<Class>`: one that was handed over in Python."""
    name = model.get("name")
    if not isinstance(name, str) or name.startswith("<"):
        return []
    if ":" in name:
        fault = name_fault(name)
        return [f"model {fault}"] if fault else []
    return _unknown(MODELS, name) or _faults(MODELS, name, table(model, "arguments"), "model")


def _method(sparse: Mapping[str, Any]) -> list[str]:
    name, arguments = sparse.get("method", "st3"), table(sparse, "arguments")
    if name == DENSE:
        return [f"method 'dense' takes no argument {key!r}" for key in arguments]
    if not isinstance(name, str):
        return []
    return _unknown(METHODS, name) or method_faults(name, arguments)


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
