"""The options of `st3 train`, and the spec that follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..experiments.changes import full_keys, make_changes
from ..experiments.checks import DENSE
from ..experiments.essence import differences, is_circumstance
from ..experiments.protocols import PROTOCOLS
from ..experiments.protocols.options import choose_protocol
from ..experiments.sparse_choices import expand_choices
from ..experiments.spec import USER_SECTIONS, Spec, check_spec, compose, resolve_protocol
from ..training.recipe import load_recipe
from ..training.sections import SettingsError, parse_changes

__all__ = ["SpecOptions", "keep_given"]


def keep_given(**options: Any) -> dict[str, Any]:
    """Return the options that were given.

    >>> keep_given(sparsity=0.9, allocation=None)
    {'sparsity': 0.9}
    """
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class SpecOptions:
    """The options of `st3 train` that determine the spec, without those that were not given."""

    data: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    sparse: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    epochs: int | None = None
    changes: tuple[str, ...] = ()
    protocol: str | None = None
    protocol_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def describes_a_run(self) -> bool:
        """Whether anything is given that determines the result, so that a new run could be meant."""
        return bool(
            any(not is_circumstance(f"data.{name}") for name in self.data)
            or self.model
            or self.sparse
            or self.seeds
            or self.recipe
            or self.epochs is not None
            or self.protocol is not None
            or self.protocol_options
            or not all(map(_changes_circumstance, self.changes))
        )

    def spec(self) -> Spec:
        """Return the spec of a new run, or raise with everything that is wrong with the options."""
        faults: list[str] = []
        changes = self._parse_changes(faults)
        try:
            spec = compose(
                data=self.data,
                model=self.model,
                sparse=self.sparse,
                recipe=self.recipe,
                epochs=self.epochs,
                seeds=self.seeds,
                machine=self.machine,
                protocol=choose_protocol(self.protocol, self.protocol_options, faults),
                changes=changes,
            )
        except SettingsError as error:
            raise SettingsError("the spec has faults", [*faults, *error.faults]) from None
        if faults:
            raise SettingsError("the spec has faults", faults)
        return spec

    def merge_into(self, stored: Spec) -> Spec:
        """Return the stored spec with the given options in it. If they agree with it, it is still the same run."""
        if self.describes_a_run and self._is_command_of(stored):
            return self._circumstances().merge_into(stored)
        faults: list[str] = []
        protocol = choose_protocol(self.protocol, self.protocol_options, faults)
        if _is_other_protocol(protocol.get("name"), stored.protocol.name):
            return self.spec()  # too different from the stored spec to be merged setting by setting
        keys = full_keys(self._parse_changes(faults), USER_SECTIONS, faults)
        values, sparse = stored.model_dump(), dict(self.sparse)
        expand_choices(sparse)
        values["recipe"] = self._merge_recipe(stored, keys)
        _merge_section(values["protocol"], protocol)
        resolve_protocol(values["protocol"], sparse, faults)
        for name in ("data", "model", "seeds", "machine"):
            _merge_section(values[name], getattr(self, name))
        _merge_section(values["sparse"], sparse)
        make_changes(values, keys, faults)
        expand_choices(values["sparse"])
        if values["sparse"]["method"].get("name") == DENSE != stored.sparse.method.name:
            usual = {"sparsity": 0.0, "block": 1}
            given = {key: self.sparse.get(key, value) for key, value in usual.items()}
            values["sparse"] |= {**given, "method": {"name": DENSE}}
            values["protocol"] = {"name": "single", **protocol}
        spec = check_spec(values, faults)
        if self.epochs is None or self.epochs == spec.recipe.epochs:
            return spec
        # Not scaled, so that the number of epochs is the only difference.
        recipe = spec.recipe.model_copy(update={"epochs": self.epochs})
        return spec.model_copy(update={"recipe": recipe})

    def _is_command_of(self, stored: Spec) -> bool:
        """Return whether these options describe the stored run completely: a job script repeats its whole command."""
        try:
            return not differences(self.spec(), stored)
        except SettingsError:
            return False

    def _circumstances(self) -> "SpecOptions":
        data = {name: value for name, value in self.data.items() if is_circumstance(f"data.{name}")}
        changes = tuple(text for text in self.changes if _changes_circumstance(text))
        return SpecOptions(data=data, machine=self.machine, changes=changes)

    def _merge_recipe(self, stored: Spec, changes: Mapping[str, Any]) -> dict[str, Any]:
        if self.recipe is None:
            return stored.recipe.model_dump()
        recipe = load_recipe(self.recipe)
        epochs = recipe.epochs if "recipe.epochs" in changes else stored.recipe.epochs
        return (recipe if recipe.epochs == epochs else recipe.scaled_to(epochs)).model_dump()

    def _parse_changes(self, faults: list[str]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for text in self.changes:
            try:
                changes |= parse_changes([text])
            except SettingsError as error:
                faults += error.faults
        return changes


def _changes_circumstance(change: str) -> bool:
    return is_circumstance(change.partition("=")[0].strip())


def _is_other_protocol(name: str | None, stored: str) -> bool:
    """Return whether another protocol is given, and one of the two consists of several parts."""
    if name in (None, stored):
        return False
    return not all(known in PROTOCOLS and PROTOCOLS[known].trains_itself for known in (str(name), stored))


def _merge_section(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Merge the given options into a section. Arguments of a different method, model or data set are dropped."""
    if given.get("name", values.get("name")) != values.get("name"):
        values |= {own: {} for own in ("arguments", "options") if own in values}
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge_section(values[key], value)
        else:
            values[key] = value
