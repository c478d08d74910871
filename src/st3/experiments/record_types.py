"""The types of what a run's JSON files hold: a file without a checksum may hold anything.

Only what readers use is declared. A key may be missing or null, as in runs of earlier versions; other keys are ignored.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..training.tasks import TASKS

__all__ = [
    "EpochRecord",
    "FinishedRecord",
    "LayersRecord",
    "SpecRecord",
    "StepRecord",
    "SummaryRecord",
    "find_fault",
]

LARGEST = 1e300  # beyond it, arithmetic overflows
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=1 << 60)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class _Scores(_Record):
    """The loss and the score of a task, under the name that the task gives it."""

    loss: Number | None = None
    needs_score: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _check_score(cls, values: Any) -> Any:
        known = {score.name: score.most or LARGEST for score in (TASKS[name].score for name in TASKS)}
        found = (
            {name: values[name] for name in known if values.get(name) is not None}
            if isinstance(values, dict)
            else {}
        )
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= known[name]:
                raise ValueError(f"{name} must be a number from 0 to {known[name]:g}")
        if cls.needs_score and not found:
            raise ValueError(f"{' or '.join(known)} is missing")
        return values


class _Switches(_Record):
    revived: Count | None = None
    zeroed: Count | None = None


class StepRecord(_Record):
    """A line about a step."""

    epoch: Positive
    step: Count | None = None
    rate: Number | None = None
    sparsity_asked: Fraction | None = None
    threshold: Number | None = None


class EpochRecord(StepRecord):
    """A line about an epoch."""

    epoch: Count
    seconds: Positive | None = None
    train: _Scores | None = None
    validation: _Scores | None = None
    sparsity: Fraction | None = None
    switches: _Switches | None = None
    gradient_norm: Number | None = None
    is_best: bool | None = None


class _Layer(_Switches):
    weights: Count
    zeros: Count
    threshold: Number | None = None

    @model_validator(mode="after")
    def _require_possible(self) -> Self:
        if self.zeros > self.weights:
            raise ValueError(f"{self.zeros:,} zeros do not fit in {self.weights:,} weights")
        return self


class LayersRecord(_Record):
    """A line about all layers after an epoch."""

    epoch: Count
    layers: dict[str, _Layer]


class _ReportRow(_Layer):
    name: str
    shape: list[Count] = Field(default_factory=list)
    dense_macs: Count | None = None
    sparse_macs: Count | None = None
    empty_filters: Count | None = None
    filters: Count | None = None


class _Report(_Record):
    weights: Count | None = None
    zeros: Count | None = None
    layers: list[_ReportRow] | None = None


class SummaryRecord(_Record):
    """A summary, as far as a report needs it."""

    test: _Scores | None = None
    validation: _Scores | None = None
    best_epoch: Count | None = None
    epochs: Count | None = None
    steps: Count | None = None
    seconds: Positive | None = None
    sparsity: Fraction | None = None
    method: str | None = None
    target: Fraction | None = None
    parameters: Count | None = None
    active_parameters: Count | None = None
    dense_macs: Count | None = None
    sparse_macs: Count | None = None
    model: str | None = None
    model_bytes: Count | None = None
    sparse_model: str | None = None
    sparse_model_bytes: Count | None = None
    report: _Report | None = None


class _Measured(_Scores):
    needs_score: ClassVar[bool] = True


class _Tested(_Record):
    test: Annotated[int, Field(ge=1)]


class _Counted(_Report):
    weights: Count
    zeros: Count


class FinishedRecord(SummaryRecord):
    """A summary with everything that `st3 train` prints of a finished run, or sums up."""

    test: _Measured
    validation: _Measured
    best_epoch: Count
    epochs: Count
    steps: Count
    seconds: Positive
    sparsity: Fraction
    target: Fraction | None
    parameters: Count
    active_parameters: Count
    sparse_macs: Count | None
    model: str
    model_bytes: Count
    report: _Counted

    @model_validator(mode="before")
    @classmethod
    def _check_examples(cls, values: Any) -> Any:
        """Check how many examples there were; runs of earlier versions do not say."""
        for name in (TASKS[name].examples for name in TASKS):
            if isinstance(values, dict) and values.get(name) is not None:
                _Tested.model_validate(values[name])
        return values


class _Recipe(_Record):
    epochs: Count | None = None
    freeze_epochs: Count | None = None


class _Sparse(_Record):
    sparsity: Fraction | None = None


class SpecRecord(_Record):
    """A spec, as far as a report needs it; training checks it completely."""

    recipe: _Recipe | None = None
    sparse: _Sparse | None = None


def find_fault(kind: type[BaseModel], content: dict[str, Any]) -> str:
    """Return what is wrong with the content in a few words; empty if nothing is."""
    try:
        kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, message = ".".join(map(str, first["loc"])), first["msg"]
        if first["type"] == "missing":
            return f"{where} is missing"
        return f"{where}: {message[0].lower()}{message[1:]}, got {str(first['input'])[:60]!r}"
    return ""
