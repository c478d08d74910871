"""What the options say, and the spec that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..experiments.spec import Spec, compose, read_spec
from ..training.sections import SettingsError, change, parse_changes, validate

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
            or any(not text.strip().startswith(CIRCUMSTANCES) for text in self.changes)
        )

    def spec(self) -> Spec:
        """Return the spec of a new run; all faults of all options are raised together."""
        faults: list[str] = []
        changes: dict[str, Any] = {}
        for text in self.changes:
            try:
                changes |= parse_changes([text])
            except SettingsError as error:
                faults += error.faults
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
            )
        except SettingsError as error:
            raise SettingsError("the spec has faults", [*faults, *error.faults]) from None
        if faults:
            raise SettingsError("the spec has faults", faults)
        return spec

    def stored_spec(self, path: Path) -> Spec:
        """Return the spec that a run has stored, under the circumstances given here."""
        values = read_spec(path).model_dump()
        values["machine"] |= self.machine
        values["data"] |= self.data
        for key, value in parse_changes(self.changes).items():
            change(values, key, value)
        return validate(Spec, values, "the spec has faults")
