"""The learning rate as a pure function of the step: drops, a cosine, a line, or constant; each with a warm-up."""

import math
from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, field_validator

from .sections import Section

__all__ = ["AnyRate", "ConstantRate", "CosineRate", "LinearRate", "Rate", "StepRate"]


class Rate(Section):
    """The factor on the base learning rate; times are in epochs."""

    warmup: NonNegativeFloat = 0.0  # epochs in which the rate rises to its base
    by_step: bool = False  # false: the rate changes between epochs only, as in the authors' program
    by_density: bool = False  # divided by the square root of the density that the ramp leaves after the step

    def factor(self, step: int, steps_per_epoch: int, epochs: float) -> float:
        """Return the factor for the optimizer step that comes after `step` others.

        The warm-up is linear and reaches 1 with its last epoch (or step): 0.2, 0.4, ... over five epochs.
        """
        tick = 1 / steps_per_epoch if self.by_step else 1.0
        time = step / steps_per_epoch if self.by_step else float(step // steps_per_epoch)
        if time < self.warmup:
            return min(1.0, (time + tick) / self.warmup)
        return self.after_warmup(step / steps_per_epoch, time, epochs)

    @abstractmethod
    def after_warmup(self, exact: float, time: float, epochs: float) -> float:
        """Return the factor at `exact` epochs; `time` is the same, or whole epochs if not `by_step`."""

    def scaled(self, ratio: float) -> "Rate":
        """Return the same shape over `ratio` times the epochs."""
        return self.model_copy(update={"warmup": self.warmup * ratio})

    def last_event(self) -> float:
        """Return the epoch of the last change; training must be longer."""
        return self.warmup


class ConstantRate(Rate):
    """Always the base rate."""

    kind: Literal["constant"] = "constant"  # always the base rate

    def after_warmup(self, exact: float, time: float, epochs: float) -> float:
        return 1.0


class StepRate(Rate):
    """Multiplied by `factor_of_drop` at each of the epochs in `drops`."""

    kind: Literal["step"] = "step"  # drops at certain epochs
    drops: tuple[NonNegativeFloat, ...]  # epochs
    factor_of_drop: Annotated[float, Field(gt=0, le=1)] = 0.1  # by which each drop multiplies the rate

    @field_validator("drops")
    @classmethod
    def _must_rise(cls, drops: tuple[float, ...]) -> tuple[float, ...]:
        if list(drops) != sorted(set(drops)):
            raise ValueError(f"the epochs of the drops must rise, got {list(drops)}")
        return drops

    def after_warmup(self, exact: float, time: float, epochs: float) -> float:
        return float(self.factor_of_drop ** sum(drop <= exact for drop in self.drops))

    def scaled(self, ratio: float) -> "Rate":
        drops = tuple(drop * ratio for drop in self.drops)
        return self.model_copy(update={"warmup": self.warmup * ratio, "drops": drops})

    def last_event(self) -> float:
        return max([self.warmup, *self.drops])


class FallingRate(Rate):
    """From the base rate after the warm-up to 0 at the end."""

    def after_warmup(self, exact: float, time: float, epochs: float) -> float:
        # If the warm-up ends within an epoch, the fall begins with the next whole one.
        begin = self.warmup if self.by_step else math.ceil(self.warmup)
        return self.fall((time - begin) / (epochs - begin))

    @abstractmethod
    def fall(self, part: float) -> float:
        """Return the factor when this part of the fall is over."""


class CosineRate(FallingRate):
    """Half a cosine, from the base rate after the warm-up to 0 at the end."""

    kind: Literal["cosine"] = "cosine"  # half a cosine, to 0 at the end

    def fall(self, part: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * part))


class LinearRate(FallingRate):
    """A line, from the base rate after the warm-up to 0 at the end."""

    kind: Literal["linear"] = "linear"  # a line, to 0 at the end

    def fall(self, part: float) -> float:
        return max(0.0, 1.0 - part)


AnyRate = Annotated[StepRate | CosineRate | LinearRate | ConstantRate, Field(discriminator="kind")]
