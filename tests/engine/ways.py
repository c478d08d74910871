"""Run a program in every way that the engine offers for one of its operations."""

from collections.abc import Callable, Iterator
from typing import Any

from st3.engine.plan.assemble import Alternative
from st3.engine.plan.make import make_plan
from st3.engine.program import Program
from st3.engine.run import Runtime


class Chooser:
    """In place of a tuner: chooses by a function of an operation's number and its alternatives, without measuring."""

    def __init__(self, choose: Callable[[int, list[Alternative]], Alternative]) -> None:
        self.choose_one, self.offered = choose, list[list[Alternative]]()

    def choose(
        self, key: str, alternatives: list[Alternative], time: Any
    ) -> tuple[Alternative, dict[str, float]]:
        self.offered.append(alternatives)
        return self.choose_one(len(self.offered) - 1, alternatives), {}


def cheapest(number: int, alternatives: list[Alternative]) -> Alternative:
    return min(alternatives, key=lambda each: each.cost)


def alternatives(program: Program, isa: str | None = None, threads: int = 1) -> list[list[Alternative]]:
    """Return the alternatives of every operation that has some."""
    chooser = Chooser(cheapest)
    make_plan(program, threads, chooser, isa)  # type: ignore[arg-type]
    return chooser.offered


def each_way(
    program: Program,
    number: int,
    wanted: Callable[[list[Alternative]], list[Alternative]],
    isa: str | None,
    threads: int = 1,
) -> Iterator[tuple[str, Runtime]]:
    """Yield a runtime for each wanted alternative of the operation `number` (of those that have some)."""
    for label in [each.label for each in wanted(alternatives(program, isa, threads)[number])]:

        def choose(at: int, offered: list[Alternative], label: str = label) -> Alternative:
            return (
                next(each for each in offered if each.label == label)
                if at == number
                else cheapest(at, offered)
            )

        yield label, Runtime.of(make_plan(program, threads, Chooser(choose), isa))  # type: ignore[arg-type]
