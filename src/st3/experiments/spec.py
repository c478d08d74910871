"""The spec: everything that determines a run, resolved and checked before the first batch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from ..data.catalogue import DATASETS, Declaration
from ..training.job import Precision
from ..training.recipe import RampRecipe, Recipe, load_recipe
from ..training.sections import Section, SettingsError, validate
from .arguments import method_of
from .changes import full_keys, make_changes, without_cycles
from .checks import DENSE, check_device, contradictions, name_faults, table
from .cycles import PRUNE, USUAL_METHOD, apply_count, cycle_sparsities

__all__ = [
    "DENSE",
    "CyclesSpec",
    "DataSpec",
    "MachineSpec",
    "ModelSpec",
    "SeedSpec",
    "SparseSpec",
    "Spec",
    "checked",
    "compose",
    "read_spec",
]

USUAL_DATA = "digits"
STAND_IN = ("digits_cnn", "digits")  # network and recipe while the faults of the other settings are collected


def _sparsity(sparsity: float) -> float:
    if not 0 <= sparsity < 1:
        percentage = f" (a percentage? try {sparsity / 100:g})" if 1 < sparsity < 100 else ""
        raise ValueError(f"must be at least 0 and below 1, got {sparsity:g}{percentage}")
    return sparsity


class DataSpec(Section):
    name: str = "digits"
    dir: str | None = None
    download: bool = False
    options: dict[str, Any] = Field(
        default_factory=dict
    )  # handed to the data set, such as padding = "edge" for CIFAR


class ModelSpec(Section):
    name: str  # in the catalogue, or package.module:function
    arguments: dict[str, Any] = Field(default_factory=dict)


class SparseSpec(Section):
    """What `st3.sparsify` is asked for; the ramp's times are the recipe's."""

    method: str = "st3"
    arguments: dict[str, Any] = Field(default_factory=dict)  # of the method
    sparsity: Annotated[float, AfterValidator(_sparsity)] | None = 0.9  # None: the method finds its own
    allocation: str = "global"
    ramp: str = "cubic"
    exclude: tuple[str, ...] = ()
    keep_dense: tuple[str, ...] = ()
    min_weights: NonNegativeInt = 0

    @property
    def is_dense(self) -> bool:
        return self.method == DENSE


class SeedSpec(Section):
    """Initial weights and data (order, augmentation) have seeds of their own."""

    init: NonNegativeInt = 0
    data: NonNegativeInt = 0


class CyclesSpec(Section):
    """How one cycle follows another (see cycles.py); the last one has the sparsity of `sparse`."""

    prune: Annotated[float, Field(gt=0, lt=1)] = PRUNE  # of the remaining weights, after each cycle
    reset_seed: bool = False  # every cycle sees the first one's pictures again, augmented in the same way
    carry: Literal["last", "best"] = "last"  # the epoch whose weights the next cycle begins with


class MachineSpec(Section):
    """How it is computed; another machine may differ here and still go on with the run."""

    device: Annotated[str, AfterValidator(check_device)] = "auto"
    precision: Precision = "float32"
    channels_last: bool = True
    compile: bool = False
    deterministic: bool = False
    sharded: bool = False  # fully_shard (FSDP2) instead of DistributedDataParallel
    workers: NonNegativeInt = 0
    threads: PositiveInt | None = None


class Spec(Section):
    data: DataSpec
    model: ModelSpec
    sparse: SparseSpec
    recipe: Recipe
    seeds: SeedSpec = SeedSpec()
    machine: MachineSpec = MachineSpec()
    dense_twin: bool = False  # train the same without sparsity first, to compare
    cycles: CyclesSpec | None = None  # None: a single one
    cycle: NonNegativeInt | None = None  # the number of this cycle in the run above it

    @property
    def first_epoch(self) -> int:
        """The epoch at which the stream of pictures begins: each cycle has its own part of it, unless it is reset."""
        if self.cycles is None or self.cycles.reset_seed:
            return 0
        return (self.cycle or 0) * self.recipe.epochs

    def each_cycle(self) -> "list[Spec]":
        """Return the runs that make up this one: the first is dense, each later one keeps its own sparsity."""
        assert self.cycles is not None
        assert self.sparse.sparsity is not None
        ramp = RampRecipe(start=0.0, end=self.recipe.ramp.end)  # sparse from before the first step
        specs = []
        for number, sparsity in enumerate(cycle_sparsities(self.sparse.sparsity, self.cycles.prune)):
            sparse = SparseSpec(method=DENSE, sparsity=0.0)
            if number:
                sparse = self.sparse.model_copy(update={"sparsity": sparsity})
            own = {"sparse": sparse, "cycle": number, "recipe": self.recipe.model_copy(update={"ramp": ramp})}
            specs.append(self.model_copy(update=own))
        return specs

    def twin(self) -> "Spec":
        """Return the same run without sparsity."""
        sparse = SparseSpec(method=DENSE, sparsity=0.0)
        return self.model_copy(update={"sparse": sparse, "dense_twin": False})

    def essence(self) -> dict[str, Any]:
        """Return every setting that changes the result, by dotted key."""
        elsewhere = ("machine.", "data.dir", "data.download")
        flat = dict(_flat(self.model_dump(mode="json")))
        unsaid = [key for key in ("cycles", "cycle") if getattr(self, key) is None]
        return {
            key: value for key, value in flat.items() if not key.startswith(elsewhere) and key not in unsaid
        }

    def differences(self, other: "Spec") -> list[str]:
        """Return `key: mine, not theirs` for every setting that changes the result."""
        mine, theirs = self.essence(), other.essence()
        keys = [key for key in {**mine, **theirs} if {} not in (mine.get(key), theirs.get(key))]
        return [f"{k}: {mine.get(k)!r}, not {theirs.get(k)!r}" for k in keys if mine.get(k) != theirs.get(k)]


def compose(
    *,
    data: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    sparse: Mapping[str, Any] | None = None,
    recipe: str | Recipe | None = None,
    epochs: int | None = None,
    seeds: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    dense_twin: bool | None = None,
    cycles: Mapping[str, Any] | None = None,
) -> Spec:
    """Return a spec from what is given; the rest is what is usual for the data set.

    Another number of `epochs` scales the recipe as a whole; `changes` (dotted keys; those of the recipe need no
    prefix) are made afterwards. With `cycles`, empty for what is usual, it is trained in cycles: up to the sparsity, or
    so many as their `count` says. All faults are raised at once.

    >>> compose(data={"name": "digits"}, epochs=15, changes={"optimizer.lr": 0.05}).recipe.ramp.end
    9.0
    """
    values: dict[str, Any] = {
        "data": dict(data or {}),
        "model": dict(model or {}),
        "sparse": dict(sparse or {}),
        "seeds": dict(seeds or {}),
        "machine": dict(machine or {}),
        "dense_twin": dense_twin,
        "cycles": None if cycles is None else dict(cycles),
    }
    faults: list[str] = []
    keys = full_keys(changes or {}, Spec.model_fields, faults)
    if cycles is None:
        keys = without_cycles(keys, faults)
    of_recipe = {key: value for key, value in keys.items() if key.startswith("recipe")}
    make_changes(values, {key: value for key, value in keys.items() if key not in of_recipe}, faults)
    apply_count(values, faults)
    base = load_recipe(_fill_in(values, faults, has_recipe=recipe is not None))
    try:
        if recipe is not None:
            base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
        if epochs is not None and epochs < 1:
            faults.append(f"epochs must be at least 1, got {epochs}")
        elif epochs is not None:
            base = base.scaled_to(epochs)
    except SettingsError as error:
        faults += _named(error)
    values["recipe"] = base.model_dump()
    make_changes(values, of_recipe, faults)
    return checked(values, faults)


def checked(values: Mapping[str, Any], faults: Sequence[str] = ()) -> Spec:
    """Return the spec with these values, or raise with all that is wrong with it, beside the `faults` known already."""
    found = [*faults]
    try:
        spec = validate(Spec, values, "spec")
        found += contradictions(spec)
    except SettingsError as error:
        found += error.faults
    if found := [*found, *name_faults(values)]:
        raise SettingsError("the spec has faults", found)
    return spec


def _fill_in(values: dict[str, Any], faults: list[str], *, has_recipe: bool) -> str:
    """Add what is usual for the data set and the method; return the name of the usual recipe."""
    data, model, sparse = (table(values, name) for name in ("data", "model", "sparse"))
    name = data.setdefault("name", USUAL_DATA)
    usual = DATASETS.declaration(name) if name in [*DATASETS] else Declaration(*STAND_IN)
    faults += _missing(name, usual, has_model="name" in model, has_recipe=has_recipe)
    in_cycles = values["cycles"] is not None
    if in_cycles:
        sparse.setdefault("method", USUAL_METHOD)
        sparse.setdefault("ramp", "constant")
    is_dense = sparse.get("method") == DENSE
    model.setdefault("name", usual.model or STAND_IN[0])
    method = method_of(str(sparse.get("method", "st3")), table(sparse, "arguments"))
    if method is not None:
        sparse.setdefault("allocation", method.usual_allocation)
        sparse.setdefault("ramp", method.usual_ramp)
        if method.own_sparsity is not None:
            sparse.setdefault("sparsity", method.own_sparsity)
        if not method.has_target:
            sparse.setdefault("sparsity", None)
    if is_dense:
        sparse.setdefault("sparsity", 0.0)
    if values["dense_twin"] is None:
        values["dense_twin"] = usual.dense_twin and not is_dense and not in_cycles
    return usual.recipe_for(model["name"]) or STAND_IN[1]


def _missing(data: str, usual: Declaration, *, has_model: bool, has_recipe: bool) -> list[str]:
    """Return a fault if neither the user nor the data set names a network and a recipe."""
    options = {"network": "--model NAME"} if not has_model and usual.model is None else {}
    if not has_recipe and usual.recipe is None:
        options["recipe"] = "--recipe NAME"
    if not options:
        return []
    return [f"data set {data!r} declares no {' and no '.join(options)}: add {' and '.join(options.values())}"]


def _named(error: SettingsError) -> list[str]:
    """Return the faults, each with what it is a fault of."""
    what = str(error).removesuffix("; ".join(error.faults))
    return [*error.faults] if what == "recipe: " else [f"{what}{fault}" for fault in error.faults]


def read_spec(path: Path) -> Spec:
    """Return the spec that a run has written."""
    try:
        return validate(Spec, json.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(str(path), [f"is damaged: {error}"]) from None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Sequence[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        pairs += (
            _flat(value, f"{prefix}{key}.")
            if isinstance(value, dict) and value
            else [(f"{prefix}{key}", value)]
        )
    return pairs
