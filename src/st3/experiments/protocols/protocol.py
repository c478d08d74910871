"""What a protocol is: the trainings that make up a run, and what one hands over to the next.

A protocol is a frozen dataclass whose fields are its settings, registered under its name. It declares; `run.py` trains
the parts one after the other, and the command line and the page show whatever parts there are. So a new protocol is one
new file in this folder.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt
from torch import nn

from ...registry import Registry
from ...training.sections import Section

if TYPE_CHECKING:
    from ..spec import Spec

__all__ = ["PROTOCOLS", "Part", "PartSpec", "Protocol", "ProtocolSpec"]

Summary = dict[str, Any]


class ProtocolSpec(Section):
    """A protocol by name, with its settings."""

    name: str = "single"
    arguments: dict[str, Any] = Field(default_factory=dict)


class PartSpec(Section):
    """What a protocol asks of one of its trainings, beside the settings that any training has."""

    title: str  # such as "cycle 3"
    first_epoch: NonNegativeInt = 0  # where its stream of pictures begins
    begins_sparse: bool = False  # its initial weights hold zeros that the training before has left
    hands_over: Literal["last", "best"] | None = (
        None  # the epoch whose raw weights the next training begins with
    )


@dataclass(frozen=True)
class Part:
    """One training of a run."""

    spec: "Spec"
    title: str  # shown on the terminal
    folder: str = ""  # inside the run's folder; empty: that folder itself


class Protocol(ABC):
    """How the trainings of a run follow one another. Abstract; the first line of a subclass's docstring is listed."""

    kind: ClassVar[str] = ""  # what its other trainings are called, which also names their folders
    trains_itself: ClassVar[bool] = (
        True  # False: the run consists of its parts, and its model is the last one's
    )
    options: ClassVar[
        Mapping[str, str | None]
    ] = {}  # of `st3 train`, which choose it -> the argument they set
    usual: ClassVar[Mapping[str, Any]] = {}  # values of the section `sparse` that are not given

    @classmethod
    def resolve(cls, arguments: dict[str, Any], sparse: dict[str, Any]) -> list[str]:
        """Replace arguments that only stand for values of the section `sparse`; return what is wrong with them."""
        return []

    def faults(self, spec: "Spec") -> list[str]:
        """Return what cannot be trained by this protocol, each in a sentence."""
        return []

    @abstractmethod
    def parts(self, spec: "Spec") -> list[Part]:
        """Return the trainings that make up the run, in their order."""

    def hand_over(self, model: nn.Module, run: Path, number: int) -> None:  # noqa: B027 - nothing, unless needed
        """Load into the model of part `number`, as it was built, what earlier parts have left in the run's folder."""

    def sum_up(self, parts: Sequence[Part], summaries: Sequence[Summary]) -> Summary:
        """Return the summary of the whole run from those of its parts."""
        return dict(summaries[-1])

    def describe(self, spec: "Spec") -> str:
        """Return what it does, for the lines that a run prints first; empty: its name says it."""
        return ""


PROTOCOLS: Registry[type[Protocol]] = Registry("protocol")
