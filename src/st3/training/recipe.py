"""Recipes: the hyper-parameters of training, as TOML files. Those of the paper are in the folder `recipes`.

A file may extend another recipe with `base = "cifar"` and state only what differs.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    field_validator,
    model_validator,
)

from ..registry import suggest
from .rates import AnyRate
from .sections import Count, CountOrZero, Section, SettingsError, change, flatten, validate

__all__ = ["OptimizerRecipe", "RampRecipe", "Recipe", "built_in_recipes", "load_recipe"]

FOLDER = Path(__file__).with_name("recipes")

Fraction = Annotated[float, Field(ge=0, lt=1)]


class OptimizerRecipe(Section):
    """The optimizer. Weight decay acts on weights only, never on norms and biases."""

    name: Literal["sgd", "adamw"] = "sgd"  # of torch.optim
    lr: PositiveFloat  # the base learning rate
    momentum: Fraction = 0.9  # for AdamW: beta1
    nesterov: bool = False  # SGD only
    beta2: Fraction = 0.999  # AdamW only
    epsilon: PositiveFloat = 1e-8  # AdamW only
    weight_decay: NonNegativeFloat = 0.0  # of weights; norms and biases have none
    weight_decay_from: tuple[tuple[Fraction, NonNegativeFloat], ...] = ()  # (sparsity, decay from there on)

    @field_validator("weight_decay_from")
    @classmethod
    def _must_rise(cls, pairs: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        sparsities = [sparsity for sparsity, _ in pairs]
        if sparsities != sorted(set(sparsities)):
            raise ValueError(f"the sparsities must rise, got {sparsities}")
        return pairs

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise ValueError("nesterov=true needs name='sgd' and a momentum above 0")
        return self

    @model_validator(mode="after")
    def _adam_needs_adamw(self) -> Self:
        for name in ("beta2", "epsilon") if self.name != "adamw" else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}={getattr(self, name):g} needs name='adamw', got name={self.name!r}")
        return self

    def decay_at(self, sparsity: float) -> float:
        """Return the weight decay for a target sparsity: less where sparsity itself regularises (paper, appendix)."""
        return [self.weight_decay, *(decay for start, decay in self.weight_decay_from if start <= sparsity)][
            -1
        ]


class RampRecipe(Section):
    """When the sparsity rises, in epochs."""

    start: NonNegativeFloat = 0.0  # epoch at which the sparsity begins to rise
    end: PositiveFloat  # epoch at which it reaches the target


class Recipe(Section):
    """The hyper-parameters of training that do not depend on network, data or sparsity."""

    name: str = "own"  # usually that of the file
    epochs: Count  # passes over the training data
    batch_size: Count  # of all processes together
    clip_norm: PositiveFloat | None = None  # largest norm of all gradients together, without loss scale
    gradient_rms: PositiveFloat | None = None  # root mean square to which all gradients together are scaled
    label_smoothing: Fraction = 0.0  # part of each label that is spread over all classes
    optimizer: OptimizerRecipe
    rate: AnyRate
    ramp: RampRecipe
    freeze_epochs: CountOrZero = 0  # more epochs after those, with the masks fixed
    rewind: bool = False  # then `epochs` more from the best weights: masks fixed, the rate from its start

    @property
    def total_epochs(self) -> int:
        """All epochs, those after the schedule included."""
        return self.epochs * (2 if self.rewind else 1) + self.freeze_epochs

    @model_validator(mode="after")
    def _times_must_fit(self) -> Self:
        advice = f"--epochs {self.epochs} scales a recipe as a whole"
        faults = []
        if self.rate.last_event() >= self.epochs:
            faults.append(
                f"the rate changes at epoch {self.rate.last_event():g}, but training ends with epoch {self.epochs} "
                f"({advice})"
            )
        if self.ramp.end > self.epochs:
            faults.append(
                f"the ramp ends at epoch {self.ramp.end:g}, but training ends with epoch {self.epochs}: the sparsity "
                f"would stop short of its target ({advice})"
            )
        if self.ramp.start >= self.ramp.end:
            faults.append(f"the ramp starts at epoch {self.ramp.start:g} and ends at {self.ramp.end:g}")
        if self.clip_norm is not None and self.gradient_rms is not None:
            faults.append(
                f"clip_norm={self.clip_norm:g} and gradient_rms={self.gradient_rms:g} scale the same gradients: set "
                f"one of them to none"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def scaled_to(self, epochs: int) -> "Recipe":
        """Return the recipe for another number of epochs, with ramp, warm-up and drops in proportion."""
        ratio = epochs / self.epochs
        ramp = RampRecipe(start=self.ramp.start * ratio, end=self.ramp.end * ratio)
        frozen = max(1, round(self.freeze_epochs * ratio)) if self.freeze_epochs else 0
        own = {"epochs": epochs, "rate": self.rate.scaled(ratio), "ramp": ramp, "freeze_epochs": frozen}
        return self.model_copy(update=own)


def built_in_recipes() -> dict[str, Path]:
    """Return the recipes that come with the library: name -> file."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Return a built-in recipe by name, or one from a TOML file."""
    text = str(name_or_path)
    values = _values(text, seen=())
    return validate(
        Recipe, {"name": Path(text).stem if _is_file(text) else text, **values}, f"recipe {text!r}"
    )


def _is_file(text: str) -> bool:
    return text.endswith(".toml") or "/" in text


def _values(text: str, seen: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of the file, merged into those of its base."""
    if text in seen:
        raise SettingsError(f"recipe {seen[0]!r}", [f"its bases form a cycle: {' -> '.join((*seen, text))}"])
    path = Path(text) if _is_file(text) else built_in_recipes().get(text)
    if path is None:
        raise SettingsError("recipe", [_unknown(text)])
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"recipe {text!r}", [f"cannot read the file: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"recipe {text!r}", [f"not a TOML file: {error}"]) from None
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str):
        raise SettingsError(
            f"recipe {text!r}", [f"base must be the name of a recipe or a file, got {base!r}"]
        )
    values = _values(str(path.parent / base) if _is_file(base) else base, (*seen, text))
    changes = {key: value for key, value in flatten(own).items() if value != {}}
    for key in sorted(changes, key=lambda key: not key.endswith(".kind")):  # first, since it clears its table
        change(values, key, changes[key])
    return values


def _unknown(text: str) -> str:
    names = built_in_recipes()
    advice = suggest(text, names) or "; a file of your own must end in .toml"
    return f"unknown recipe {text!r}{advice} (known: {', '.join(names)})"
