"""The spec: everything that determines a run, resolved and checked before the first batch."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from ..core.method import METHODS
from ..data.catalogue import DATASETS, Declaration
from ..training.job import Precision
from ..training.recipe import Recipe, load_recipe
from ..training.sealed import parse
from ..training.sections import MOST, Count, CountOrZero, Section, SettingsError, validate
from .arguments import build_or_none, default_arguments
from .changes import full_keys, make_changes
from .checks import DENSE, check_device, contradictions, name_faults, table
from .old_specs import translate_spec
from .protocols import PROTOCOLS, PartSpec, ProtocolSpec
from .sparse_choices import expand_choices, name_and_arguments

__all__ = [
    "DENSE",
    "ChoiceSpec",
    "DataSpec",
    "MachineSpec",
    "ModelSpec",
    "ProtocolSpec",
    "SeedSpec",
    "SparseSpec",
    "Spec",
    "check_spec",
    "compose",
    "read_spec",
    "resolve_protocol",
]

USUAL_DATA = "digits"
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]  # torch takes 64 bits, and each process adds its number
STAND_IN = ("digits_cnn", "digits")  # network and recipe while the faults of the other settings are collected


def _sparsity(sparsity: float) -> float:
    if not 0 <= sparsity < 1:
        percentage = f" (a percentage? try {sparsity / 100:g})" if 1 < sparsity < 100 else ""
        raise ValueError(f"must be at least 0 and below 1, got {sparsity:g}{percentage}")
    return sparsity


class DataSpec(Section):
    name: str = "digits"  # see `st3 list data`
    dir: str | None = None  # folder of its files; none: in the cache
    download: bool = False  # fetch files that are missing
    options: dict[str, Any] = Field(default_factory=dict)  # such as padding = "edge" for CIFAR


class ModelSpec(Section):
    name: str  # see `st3 list models`; or package.module:function
    arguments: dict[str, Any] = Field(default_factory=dict)  # of the function that builds the network


class ChoiceSpec(Section):
    """A method, ramp or allocation by name, with its settings."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _take_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping | cls):
            raise ValueError(f"must be a name, or a table with a name and arguments, got {value!r}")
        return value


class SparseSpec(Section):
    """The arguments of `st3.sparsify`."""

    method: ChoiceSpec = ChoiceSpec(name="st3")  # "dense" for no sparsity
    sparsity: Annotated[float, AfterValidator(_sparsity)] | None = 0.9  # 0 to below 1; none: no target
    allocation: ChoiceSpec = ChoiceSpec(name="global")  # how layers share the sparsity
    ramp: ChoiceSpec = ChoiceSpec(name="cubic")  # times not among its arguments: the method's or the recipe's
    block: Count = 1  # weights that are zeroed together, along the inputs
    exclude: tuple[str, ...] = ()  # names and globs; "first layer", "last layer"
    min_weights: CountOrZero = 0  # that every layer keeps

    @property
    def is_dense(self) -> bool:
        return self.method.name == DENSE


class SeedSpec(Section):
    """One seed for the initial weights, one for the data: their order and augmentation."""

    init: Seed = 0  # of the initial weights
    data: Seed = 0  # of the order and augmentation of examples


class MachineSpec(Section):
    """How a run is computed. A run may be resumed with other values: see essence.py."""

    device: Annotated[str, AfterValidator(check_device)] = "auto"  # or cpu, cuda, cuda:1
    precision: Precision = "float32"  # of the forward pass, by autocast
    channels_last: bool = True  # memory format of pictures and weights
    compile: bool = False  # torch.compile
    deterministic: bool = False  # deterministic algorithms only
    sharded: bool = False  # fully_shard (FSDP2) instead of DistributedDataParallel
    workers: CountOrZero = 0  # processes that prepare batches of picture files
    threads: Count | None = None  # of torch on the CPU; none: its own choice


class RecordSpec(Section):
    """What is recorded beside the usual metrics; it does not change the result."""

    switch_windows: CountOrZero = 0  # count switches at every step, in this many parts of the run; 0: do not


class Spec(Section):
    data: DataSpec
    model: ModelSpec
    sparse: SparseSpec
    recipe: Recipe
    seeds: SeedSpec = SeedSpec()
    machine: MachineSpec = MachineSpec()
    record: RecordSpec = RecordSpec()
    protocol: ProtocolSpec = ProtocolSpec()
    part: PartSpec | None = None  # set by the protocol in the specs of its parts, never by the user

    def alone(self) -> "Spec":
        """Return the spec of the same training by itself, whatever the protocol."""
        return self.model_copy(update={"protocol": ProtocolSpec()})

    def without_sparsity(self) -> "Spec":
        """Return the spec of the same training by itself and without sparsity."""
        dense = SparseSpec(method=ChoiceSpec(name=DENSE), sparsity=0.0)
        return self.alone().model_copy(update={"sparse": dense})


# What users may set.
USER_SECTIONS = tuple(name for name in Spec.model_fields if name != "part")


def compose(
    *,
    data: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    sparse: Mapping[str, Any] | None = None,
    recipe: str | Recipe | None = None,
    epochs: int | None = None,
    seeds: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    protocol: str | Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Spec:
    """Return the spec with these settings; those not given have the values that are usual for the data set.

    `epochs` scales the whole recipe; `changes` (dotted keys; those of the recipe need no prefix) are made afterwards.
    `protocol` is a name, or a name with `arguments`: {"name": "lrr", "arguments": {"count": 11}} are 11 cycles. If
    anything is wrong, everything that is wrong is raised at once.

    >>> compose(data={"name": "digits"}, epochs=15, changes={"optimizer.lr": 0.05}).recipe.ramp.end
    9.0
    """
    values: dict[str, Any] = {
        "data": dict(data or {}),
        "model": dict(model or {}),
        "sparse": dict(sparse or {}),
        "seeds": dict(seeds or {}),
        "machine": dict(machine or {}),
        "protocol": {"name": protocol} if isinstance(protocol, str) else dict(protocol or {}),
    }
    values = copy.deepcopy(values)
    faults: list[str] = []
    expand_choices(values["sparse"])
    keys = full_keys(changes or {}, USER_SECTIONS, faults)
    of_recipe = {key: value for key, value in keys.items() if key.startswith("recipe")}
    make_changes(values, {key: value for key, value in keys.items() if key not in of_recipe}, faults)
    base = load_recipe(_fill_in(values, faults, has_recipe=recipe is not None))
    try:
        if recipe is not None:
            base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
        if epochs is not None and not 1 <= epochs <= MOST:
            faults.append(f"epochs must be from 1 to {MOST:,}, got {epochs}")
        elif epochs is not None:
            base = base.scaled_to(epochs)
    except SettingsError as error:
        faults += _name_faults(error)
    values["recipe"] = base.model_dump()
    make_changes(values, of_recipe, faults)
    return check_spec(values, faults)


def check_spec(values: Mapping[str, Any], faults: Sequence[str] = ()) -> Spec:
    """Return the spec with these values, or raise with everything that is wrong, known `faults` included."""
    found = [*faults]
    try:
        spec = validate(Spec, values, "spec")
        found += contradictions(spec)
    except SettingsError as error:
        found += error.faults
    if found := [*found, *name_faults(values)]:
        raise SettingsError("the spec has faults", found)
    return spec


def resolve_protocol(protocol: dict[str, Any], sparse: dict[str, Any], faults: list[str]) -> None:
    """Complete the protocol's arguments, and replace those that stand for values of `sparse`."""
    name = protocol.get("name")
    if isinstance(name, str) and name in PROTOCOLS:
        arguments = protocol.setdefault("arguments", {})
        if isinstance(arguments, dict):
            faults += PROTOCOLS[name].resolve(arguments, sparse)
            protocol["arguments"] = {**default_arguments(PROTOCOLS[name]), **arguments}


def _fill_in(values: dict[str, Any], faults: list[str], *, has_recipe: bool) -> str:
    """Add what is usual for the data set, the protocol and the method; return the name of the usual recipe."""
    data, model, sparse, protocol = (table(values, name) for name in ("data", "model", "sparse", "protocol"))
    name = data.setdefault("name", USUAL_DATA)
    usual = DATASETS.declaration(name) if name in [*DATASETS] else Declaration(*STAND_IN)
    faults += _missing(name, usual, has_model="name" in model, has_recipe=has_recipe)
    model.setdefault("name", usual.model or STAND_IN[0])
    expand_choices(sparse)
    is_dense = name_and_arguments(sparse, "method")[0] == DENSE
    protocol.setdefault("name", "twin" if usual.dense_twin and not is_dense else "single")
    resolve_protocol(protocol, sparse, faults)
    if str(protocol["name"]) in PROTOCOLS:
        for key, value in PROTOCOLS[protocol["name"]].usual.items():
            sparse.setdefault(key, value)
    expand_choices(sparse)
    if isinstance(sparse.setdefault("method", {}), dict):
        sparse["method"].setdefault("name", "st3")
    chosen, arguments = name_and_arguments(sparse, "method")
    method = build_or_none(METHODS, str(chosen), arguments)
    if method is not None:
        for key, value in (("allocation", method.usual_allocation), ("ramp", method.usual_ramp)):
            if isinstance(sparse.setdefault(key, {}), dict):
                sparse[key].setdefault("name", value)
        if method.own_sparsity is not None:
            sparse.setdefault("sparsity", method.own_sparsity)
        if not method.has_target:
            sparse.setdefault("sparsity", None)
    if is_dense:
        sparse.setdefault("sparsity", 0.0)
    return usual.recipe_for(model["name"]) or STAND_IN[1]


def _missing(data: str, usual: Declaration, *, has_model: bool, has_recipe: bool) -> list[str]:
    """Return a fault if neither the user nor the data set names a network and a recipe."""
    options = {"network": "--model NAME"} if not has_model and usual.model is None else {}
    if not has_recipe and usual.recipe is None:
        options["recipe"] = "--recipe NAME"
    if not options:
        return []
    return [f"data set {data!r} declares no {' and no '.join(options)}: add {' and '.join(options.values())}"]


def _name_faults(error: SettingsError) -> list[str]:
    """Return the faults, each with what it is a fault of."""
    what = str(error).removesuffix("; ".join(error.faults))
    return [*error.faults] if what == "recipe: " else [f"{what}{fault}" for fault in error.faults]


def read_spec(path: Path) -> Spec:
    """Return the spec of a run from its spec.json, also from one that an earlier version has written."""
    try:
        return validate(Spec, translate_spec(parse(path.read_bytes())), str(path))
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from None
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(str(path), [f"is damaged: {error}"]) from None
