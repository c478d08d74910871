"""The spec: everything that determines a run, resolved and checked before the first batch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from ..core.allocations import ALLOCATIONS
from ..core.method import METHODS
from ..core.ramps import RAMPS
from ..data import DATASETS
from ..models import MODELS
from ..training.job import Precision
from ..training.recipe import Recipe, load_recipe
from ..training.sections import Section, SettingsError, change, validate

__all__ = [
    "DENSE",
    "DataSpec",
    "MachineSpec",
    "ModelSpec",
    "SeedSpec",
    "SparseSpec",
    "Spec",
    "compose",
    "read_spec",
]

DENSE = "dense"  # the method that is none

# What goes with a data set if nothing is said: network, recipe.
USUAL = {
    "digits": ("digits_cnn", "digits"),
    "cifar10": ("resnet20", "cifar"),
    "cifar100": ("resnet20", "cifar"),
    "fashion_mnist": ("resnet20", "cifar"),
    "imagenet": ("resnet50", "imagenet"),
}


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
    sparsity: Annotated[float, AfterValidator(_sparsity)] = 0.9
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


class MachineSpec(Section):
    """How it is computed; another machine may differ here and still go on with the run."""

    device: str = "auto"
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

    def twin(self) -> "Spec":
        """Return the same run without sparsity."""
        sparse = SparseSpec(method=DENSE, sparsity=0.0)
        return self.model_copy(update={"sparse": sparse, "dense_twin": False})

    def differences(self, other: "Spec") -> list[str]:
        """Return `key: mine, not theirs` for every setting that changes the result."""
        mine, theirs = (dict(_flat(spec.model_dump(mode="json"))) for spec in (self, other))
        keys = [
            key for key in {**mine, **theirs} if not key.startswith(("machine.", "data.dir", "data.download"))
        ]
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
) -> Spec:
    """Return a spec from what is given; the rest is what is usual for the data set.

    Another number of `epochs` scales the recipe as a whole; `changes` (dotted keys; those of the recipe need no
    prefix) are made afterwards. All faults are raised at once.

    >>> compose(data={"name": "digits"}, epochs=15, changes={"optimizer.lr": 0.05}).recipe.ramp.end
    9.0
    """
    data = {"name": "digits", **(data or {})}
    usual_model, usual_recipe = USUAL.get(str(data["name"]), ("resnet20", "cifar"))
    model = {"name": usual_model, **(model or {})}
    if (data["name"], model["name"]) == ("imagenet", "mobilenet_v1"):
        usual_recipe = "imagenet-mobilenet"
    sparse = dict(sparse or {})
    if sparse.get("method") == DENSE:
        sparse.setdefault("sparsity", 0.0)
    faults: list[str] = []
    try:
        base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe or usual_recipe)
        if epochs is not None and epochs < 1:
            faults.append(f"epochs must be at least 1, got {epochs}")
        elif epochs is not None:
            base = base.scaled_to(epochs)
    except SettingsError as error:
        faults += error.faults
        base = load_recipe(usual_recipe)
    is_digits = data["name"] == "digits" and sparse.get("method") != DENSE
    values: dict[str, Any] = {
        "data": dict(data),
        "model": dict(model),
        "sparse": sparse,
        "recipe": base.model_dump(),
        "seeds": dict(seeds or {}),
        "machine": dict(machine or {}),
        "dense_twin": is_digits if dense_twin is None else dense_twin,
    }
    sections = set(Spec.model_fields)
    for key, value in (changes or {}).items():
        change(values, key if key.split(".")[0] in sections else f"recipe.{key}", value)
    try:
        spec = validate(Spec, values, "spec")
    except SettingsError as error:
        raise SettingsError(
            "the spec has faults", [*faults, *error.faults, *_unknown_names(values)]
        ) from None
    if faults := [*faults, *_unknown_names(values), *_contradictions(spec)]:
        raise SettingsError("the spec has faults", faults)
    return spec


def read_spec(path: Path) -> Spec:
    """Return the spec that a run has written."""
    try:
        return validate(Spec, json.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from None
    except json.JSONDecodeError as error:
        raise SettingsError(str(path), [f"is damaged: {error}"]) from None


def _unknown_names(values: Mapping[str, Any]) -> list[str]:
    """Look up every name; a network may also be any `package.module:function`."""
    sparse = values["sparse"]
    wanted: list[tuple[Any, Any]] = [
        (DATASETS, values["data"].get("name")),
        (ALLOCATIONS, sparse.get("allocation", "global")),
        (RAMPS, sparse.get("ramp", "cubic")),
    ]
    if ":" not in str(values["model"].get("name")):
        wanted.append((MODELS, values["model"].get("name")))
    if sparse.get("method", "st3") != DENSE:
        wanted.append((METHODS, sparse.get("method", "st3")))
    faults = []
    for registry, name in wanted:
        try:
            registry[name]
        except LookupError as error:
            faults.append(str(error.args[0]))
    return faults


def _contradictions(spec: Spec) -> list[str]:
    faults = []
    if spec.sparse.is_dense and spec.sparse.sparsity:
        faults.append(f"method 'dense' with sparsity {spec.sparse.sparsity:g}: leave one of them out")
    if spec.sparse.is_dense and spec.dense_twin:
        faults.append("method 'dense' needs no dense twin")
    if spec.machine.precision == "float16" and spec.machine.device == "cpu":
        faults.append("precision float16 needs a CUDA device; on a CPU use bfloat16")
    return faults


def _flat(values: Mapping[str, Any], prefix: str = "") -> Sequence[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        pairs += (
            _flat(value, f"{prefix}{key}.")
            if isinstance(value, dict) and value
            else [(f"{prefix}{key}", value)]
        )
    return pairs
