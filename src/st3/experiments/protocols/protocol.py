"""What a protocol is: the parts of a run, and what each hands over to the next.

Each part is a complete training by the whole recipe. A protocol is a frozen dataclass, registered under its name, whose
fields are its settings. It only declares the parts: `run.py` trains them, and the command line and the page show
whatever parts there are. So a new protocol is one new file in this folder.
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
FILES = ("model", "sparse_model")  # in a summary: names of files beside it


class ProtocolSpec(Section):
    """A protocol by name, with its settings."""

    name: str = "single"  # see `st3 list protocols`
    arguments: dict[str, Any] = Field(default_factory=dict)  # of the protocol


class PartSpec(Section):
    """What a protocol asks of one part, beside the settings that every part has."""

    title: str  # such as "cycle 3"
    first_epoch: NonNegativeInt = 0  # where its stream of batches begins
    begins_sparse: bool = False  # its initial weights hold zeros that the part before has left
    hands_over: Literal["last", "best"] | None = None  # the epoch whose raw weights the next part begins with


@dataclass(frozen=True)
class Part:
    """One part of a run."""

    spec: "Spec"
    title: str  # shown on the terminal
    folder: str = ""  # inside the run's folder; empty: that folder itself


class Protocol(ABC):
    """Which parts a run has. Abstract; `st3 list` shows the first line of a subclass's docstring."""

    # What its parts are called, and their folders; empty if it has only one.
    kind: ClassVar[str] = ""
    # Whether the last part is in the run's folder. False: the run consists of parts, and its model is the last one's.
    trains_itself: ClassVar[bool] = True
    # Options of `st3 train` that choose this protocol, each with the argument that it sets.
    options: ClassVar[Mapping[str, str | None]] = {}
    # Values of the section `sparse` that are usual with this protocol.
    usual: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def resolve(cls, arguments: dict[str, Any], sparse: dict[str, Any]) -> list[str]:
        """Replace arguments that only stand for values of the section `sparse`; return what is wrong with them."""
        return []

    def faults(self, spec: "Spec") -> list[str]:
        """Return a sentence for everything in the spec that this protocol cannot train."""
        return []

    @abstractmethod
    def parts(self, spec: "Spec") -> list[Part]:
        """Return the parts of the run, in order."""

    def hand_over(self, model: nn.Module, run: Path, number: int) -> None:  # noqa: B027 - optional
        """Load into the model of part `number`, as it was built, what earlier parts have left in the run's folder."""

    def sum_up(self, parts: Sequence[Part], summaries: Sequence[Summary]) -> Summary:
        """Return the summary of the whole run from those of its parts: the last one's, with the paths of its files."""
        folder, last = parts[-1].folder, summaries[-1]
        return {**last, **{key: f"{folder}/{last[key]}" for key in FILES if folder and last[key]}}

    def describe(self, spec: "Spec") -> str:
        """Return a few words on what it does, printed before the run begins; empty if its name says it all."""
        return ""


PROTOCOLS: Registry[type[Protocol]] = Registry("protocol")
