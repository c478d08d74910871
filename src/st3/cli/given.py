"""What the options say, and the spec that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..experiments.changes import full_keys, make_changes, without_cycles
from ..experiments.checks import DENSE, table
from ..experiments.cycles import PROTOCOLS, apply_count, unknown_protocol
from ..experiments.spec import Spec, checked, compose
from ..training.recipe import load_recipe
from ..training.sections import SettingsError, parse_changes

__all__ = ["Given", "said"]

# Settings that another machine may change without becoming another run.
CIRCUMSTANCES = ("machine.", "data.dir", "data.download")


def said(**options: Any) -> dict[str, Any]:
    """Return the options that were given.

    >>> said(sparsity=0.9, allocation=None)
    {'sparsity': 0.9}
    """
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class Given:
    """The options of `st3 train` that make a spec; those not given are not in it."""

    data: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    sparse: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    epochs: int | None = None
    changes: tuple[str, ...] = ()
    dense_twin: bool | None = None
    protocol: str | None = None
    cycles: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names_a_run(self) -> bool:
        """Whether anything is said that determines the result: then it is not simply "that run in that folder"."""
        return bool(
            "name" in self.data
            or self.model
            or self.sparse
            or self.seeds
            or self.recipe
            or self.epochs is not None
            or self.dense_twin is not None
            or self.protocol is not None
            or self.cycles
            or not all(map(_is_circumstance, self.changes))
        )

    def spec(self) -> Spec:
        """Return the spec of a new run; all faults of all options are raised together."""
        faults: list[str] = []
        changes = self._parsed(faults)
        try:
            spec = compose(
                data=self.data,
                model=self.model,
                sparse=self.sparse,
                recipe=self.recipe,
                epochs=self.epochs,
                seeds=self.seeds,
                machine=self.machine,
                changes=changes,
                dense_twin=self.dense_twin,
                cycles=self._cycles(faults),
            )
        except SettingsError as error:
            raise SettingsError("the spec has faults", [*faults, *error.faults]) from None
        if faults:
            raise SettingsError("the spec has faults", faults)
        return spec

    def over(self, stored: Spec) -> Spec:
        """Return the stored spec with what is said here in its place: where they agree, it is the same run."""
        if self.names_a_run and self._is_command_of(stored):
            return self._circumstances().over(stored)
        if self._is_of_other_protocol(stored):
            return self.spec()  # of one cycle and of several nothing is worth comparing setting by setting
        faults: list[str] = []
        keys = full_keys(self._parsed(faults), Spec.model_fields, faults)
        values = stored.model_dump()
        if values["cycles"] is None:
            keys = without_cycles(keys, faults)
        else:
            values["cycles"] |= self.cycles
            if "count" in self.cycles:
                values["sparse"].pop("sparsity")  # follows from the number of cycles
        values["recipe"] = self._recipe_over(stored, keys)
        for name in ("data", "model", "sparse", "seeds", "machine"):
            _lay_over(values[name], getattr(self, name))
        if self.dense_twin is not None:
            values["dense_twin"] = self.dense_twin
        make_changes(values, keys, faults)
        apply_count(values, faults)
        if table(values, "sparse").get("method") == DENSE != stored.sparse.method:
            values["sparse"] |= {"sparsity": self.sparse.get("sparsity", 0.0), "arguments": {}}
            values["dense_twin"] = bool(self.dense_twin)
        spec = checked(values, faults)
        if self.epochs is None or self.epochs == spec.recipe.epochs:
            return spec
        # Not scaled: the number alone is what differs.
        recipe = spec.recipe.model_copy(update={"epochs": self.epochs})
        return spec.model_copy(update={"recipe": recipe})

    def _cycles(self, faults: list[str]) -> dict[str, Any] | None:
        """Return what is said about cycles, None if there is to be a single one."""
        if self.protocol is not None and self.protocol not in PROTOCOLS:
            faults.append(unknown_protocol(self.protocol))
        if self.protocol == "single" and self.cycles:
            faults.append("protocol 'single' is one cycle: leave out --cycles and --reset-seed, or take lrr")
        elif self.protocol is None and self.cycles and "count" not in self.cycles:
            faults.append("--reset-seed is for training in cycles: add --protocol lrr or --cycles N")
        return dict(self.cycles) if self.protocol == "lrr" or "count" in self.cycles else None

    def _is_of_other_protocol(self, stored: Spec) -> bool:
        if self.protocol is not None and self.protocol not in PROTOCOLS:
            return True
        if stored.cycles is None:
            return self.protocol == "lrr" or bool(self.cycles)
        return self.protocol == "single"

    def _is_command_of(self, stored: Spec) -> bool:
        """Return whether a new run would be the stored one: a job script repeats its whole command."""
        try:
            return not self.spec().differences(stored)
        except SettingsError:
            return False

    def _circumstances(self) -> "Given":
        data = {name: value for name, value in self.data.items() if name != "name"}
        changes = tuple(text for text in self.changes if _is_circumstance(text))
        return Given(data=data, machine=self.machine, changes=changes)

    def _recipe_over(self, stored: Spec, changes: Mapping[str, Any]) -> dict[str, Any]:
        if self.recipe is None:
            return stored.recipe.model_dump()
        recipe = load_recipe(self.recipe)
        epochs = recipe.epochs if "recipe.epochs" in changes else stored.recipe.epochs
        return (recipe if recipe.epochs == epochs else recipe.scaled_to(epochs)).model_dump()

    def _parsed(self, faults: list[str]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for text in self.changes:
            try:
                changes |= parse_changes([text])
            except SettingsError as error:
                faults += error.faults
        return changes


def _is_circumstance(change: str) -> bool:
    return change.strip().startswith(CIRCUMSTANCES)


def _lay_over(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Put what is given in its place; what goes with one name means nothing to another."""
    for kind, own in (("name", "arguments"), ("name", "options"), ("method", "arguments")):
        if given.get(kind, values.get(kind)) != values.get(kind) and own in values:
            values[own] = {}
    values |= given
