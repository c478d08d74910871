"""A run that is wanted: the options that describe it, from which its spec and its command line follow."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..essence import identity
from ..spec import SeedSpec, Spec, compose

__all__ = ["Wanted"]


@dataclass(frozen=True)
class Wanted:
    """One run of a study."""

    series: str  # the curve that it is a point of
    data: str
    model: str
    sparse: Mapping[str, Any]  # the section `sparse` of the spec: method, sparsity, allocation, ramp
    recipe: str | None = None  # None: the usual one of the data set
    epochs: int | None = None  # None: as many as the recipe has
    protocol: Mapping[str, Any] = field(default_factory=lambda: {"name": "single"})
    seed: int = 0
    windows: int = 0  # count the switches of every weight, in so many parts of the run

    @cached_property
    def spec(self) -> Spec:
        """The complete spec; raises with everything that is wrong with the options."""
        options = {
            "data": {"name": self.data},
            "model": {"name": self.model},
            "sparse": self.sparse,
            "recipe": self.recipe,
            "epochs": self.epochs,
            "protocol": self.protocol,
            "changes": {"record.switch_windows": self.windows} if self.windows else None,
        }
        seeds = SeedSpec(init=self.seed, data=self.seed)
        return _compose(json.dumps(options)).model_copy(update={"seeds": seeds})

    @cached_property
    def identity(self) -> str:
        """What the run is known by: see essence.py."""
        return identity(self.spec)

    @property
    def folder(self) -> str:
        """The name of its folder, if it has to be trained."""
        asked = self.spec.sparse.sparsity
        sparsity = "" if asked is None or self.spec.sparse.is_dense else f"-{asked:g}"
        name = f"{self.data}-{self.model}-{self.series}{sparsity}-seed{self.seed}"
        return "-".join([name.replace(":", "."), *(["switches"] if self.windows else []), self.identity])

    @property
    def title(self) -> str:
        """A few words for tables and messages."""
        asked = self.sparse.get("sparsity")
        sparsity = "" if asked is None else f" {100 * asked:g} %"
        return f"{self.series}{sparsity} {self.model} seed {self.seed}"

    @cached_property
    def epochs_in_all(self) -> int:
        """How many epochs the run has, those of all its parts together."""
        from ..protocols import PROTOCOLS

        protocol = PROTOCOLS[self.spec.protocol.name](**self.spec.protocol.arguments)
        return sum(part.spec.recipe.total_epochs for part in protocol.parts(self.spec))

    def command(self, folder: Path, *, data: Mapping[str, Any] = {}, machine: Mapping[str, Any] = {}) -> str:
        """Return the command that trains this run into `folder`, or continues it there.

        `data` and `machine` are settings of these sections: where the files are, what the run is computed on.
        """
        words = ["st3", "train", "--data", self.data, "--model", self.model]
        words += ["--data-dir", data["dir"]] if "dir" in data else []
        words += ["--download"] if data.get("download") else []
        words += [] if self.recipe is None else ["--recipe", self.recipe]
        words += [] if self.epochs is None else ["--epochs", str(self.epochs)]
        words += ["--protocol", str(self.protocol["name"])]
        words += _settings("protocol.arguments", self.protocol.get("arguments", {}))
        for key, value in self.sparse.items():
            words += _choice(key, value)
        words += ["--seed", str(self.seed)]
        words += [word for name, value in machine.items() for word in (f"--{name}", str(value))]
        words += ["--set", f"record.switch_windows={self.windows}"] if self.windows else []
        return shlex.join([*words, "--run", str(folder), "--resume"])


@cache
def _compose(options: str) -> Spec:
    """Return the spec with seed 0; the runs of a curve differ in their seeds alone."""
    return compose(**json.loads(options))


def _choice(key: str, value: Any) -> list[str]:
    """Return the option for one entry of the section `sparse`."""
    if key == "sparsity":
        return [f"--{key}", repr(float(value))]
    if isinstance(value, Mapping):
        return [
            *_choice(key, value["name"]),
            *_settings(f"sparse.{key}.arguments", value.get("arguments", {})),
        ]
    if key in ("method", "allocation", "block"):
        return [f"--{key}", str(value)]
    return ["--set", f"sparse.{key}={value if isinstance(value, str) else json.dumps(value)}"]


def _settings(section: str, values: Mapping[str, Any]) -> list[str]:
    pairs = [f"{section}.{name}={v if isinstance(v, str) else json.dumps(v)}" for name, v in values.items()]
    return [word for pair in pairs for word in ("--set", pair)]
