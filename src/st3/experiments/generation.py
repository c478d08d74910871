"""Continue a text with a stored language model: one character at a time, in the engine."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..core.errors import name_some
from ..core.report import report
from ..data.alphabet import Alphabet
from ..engine import Compiled
from ..engine import compile as compile_engine
from ..models.decoding import HasDecoder
from ..training.sections import SettingsError
from .rebuilt import rebuild
from .stored_model import StoredModel, read_stored_model

__all__ = ["Continuation", "Reader", "choose", "continue_text"]

SHOWN = 100  # characters of an alphabet in a message


def continue_text(
    path: str | Path,
    prompt: str,
    *,
    length: int = 500,
    temperature: float = 0.8,
    seed: int = 0,
    threads: int = 1,
    model: str | None = None,
) -> "Continuation":
    """Compile the model of a run's folder or of a file, and return the continuation of the prompt, to be iterated over.

    It has `length` more characters. Each is drawn from the model's probabilities, sharpened by a `temperature` below 1;
    0 takes the most probable one. `model` is needed if the file does not name its network.
    """
    faults = _option_faults(prompt, length, temperature)
    stored = read_stored_model(Path(path))
    made_by = stored.made_by(model)
    if made_by is None:
        raise SettingsError("generate", [*faults, f"{stored.path} does not name its model: add --model NAME"])
    made = rebuild(stored, made_by, stored.shape)
    alphabet = _alphabet(stored, made.classes)
    if not isinstance(made.network, HasDecoder):
        faults.append(
            f"{made_by.name!r} in {stored.path} takes {made.task.examples} and has no decoder(), so it cannot write: "
            "st3 train --data text trains a network that can"
        )
    elif alphabet is None or stored.shape is None:
        faults.append(
            f"{stored.path} does not say which characters its numbers stand for: give a run of this version of st3"
        )
    elif missing := alphabet.missing(prompt):
        faults.append(
            f"--prompt has {name_some(missing)}, not among the {made.classes} characters of the text that the "
            f"model was trained on: {''.join(alphabet.classes[:SHOWN])!r}{' ...' * (made.classes > SHOWN)}"
        )
    if faults:
        raise SettingsError("generate", faults)
    assert isinstance(made.network, HasDecoder)
    assert alphabet is not None
    assert stored.shape is not None
    example = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    return Continuation(
        model=made_by.name,
        sparsity=report(made.network, include=stored.layers).sparsity,
        alphabet=alphabet,
        decoder=compile_engine(made.network.decoder().eval(), example, threads=threads),
        context=stored.shape[0],
        prompt=prompt,
        length=length,
        temperature=temperature,
        seed=seed,
    )


def _option_faults(prompt: str, length: int, temperature: float) -> list[str]:
    faults = []
    if not prompt:
        faults.append("--prompt is empty: give at least one character to continue")
    if length < 1:
        faults.append(f"--length must be at least 1, got {length}")
    if not 0 <= temperature < math.inf:
        faults.append(f"--temperature must be 0 or a positive number, got {temperature:g}")
    return faults


def _alphabet(stored: StoredModel, vocabulary: int) -> Alphabet | None:
    """Return the characters that the file lists, if there is one for each of the model's numbers."""
    try:
        return Alphabet(stored.classes) if stored.classes and len(stored.classes) == vocabulary else None
    except ValueError:
        return None


@dataclass
class Continuation:
    """Iterates over the text after a prompt, piece by piece; afterwards `seconds` says how long the model took."""

    model: str
    sparsity: float
    alphabet: Alphabet
    decoder: Compiled
    context: int
    prompt: str
    length: int
    temperature: float
    seed: int
    seconds: float = 0.0

    def __iter__(self) -> Iterator[str]:
        return self.alphabet.decode(self._numbers())

    def _numbers(self) -> Iterator[int]:
        self.seconds = 0.0
        reader, generator = Reader(self.decoder, self.context), torch.Generator().manual_seed(self.seed)
        unread = self.alphabet.encode(self.prompt)
        for _ in range(self.length):
            begin = time.perf_counter()
            for number in unread:
                scores = reader.read(number)
            chosen = choose(scores, self.temperature, generator)
            unread = [chosen]
            self.seconds += time.perf_counter() - begin
            yield chosen


class Reader:
    """Reads a text of any length with a compiled decoder.

    When its context is full, it forgets the first half: the cache is emptied, and the last half of the context is read
    again from position 0.
    """

    def __init__(self, decoder: Compiled, context: int) -> None:
        self._decoder, self._context = decoder, context
        self._decoder.reset()
        self._in_cache: list[int] = []
        self._number = torch.zeros(1, 1, dtype=torch.int64)
        self._position = torch.zeros(1, dtype=torch.int64)

    def read(self, number: int) -> Tensor:
        """Read one more character and return the scores of the next."""
        if len(self._in_cache) == self._context:
            kept = self._in_cache[self._context - self._context // 2 :]
            self._decoder.reset()
            self._in_cache = []
            for each in kept:
                self._step(each)
        return self._step(number)

    def _step(self, number: int) -> Tensor:
        self._number.fill_(number)
        self._position.fill_(len(self._in_cache))
        self._in_cache.append(number)
        scores: Tensor = self._decoder(self._number, self._position)
        return scores[0, 0]


def choose(scores: Tensor, temperature: float, generator: torch.Generator) -> int:
    """Draw a number by its score, or take the one with the largest if the temperature is 0."""
    if temperature == 0:
        return int(scores.argmax())
    relative = (scores - scores.max()).double()  # in float64, and at most 0: no temperature is too small
    return int(torch.multinomial(torch.softmax(relative / temperature, 0), 1, generator=generator))
