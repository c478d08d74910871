"""Training in cycles, each sparser than the one before: LRR, and LRR with another method inside.

LRR (Renda, Frankle & Carbin, ICLR 2020) trains the dense network by the whole recipe, prunes a part of the remaining
weights, rewinds the learning rate and trains again, and so on. Here each cycle keeps one sparsity, by a constant ramp.
Any method that can begin with trained weights may be inside: fixed masks are LRR, ST-3 is LRR+ST-3.

RUN/cycle-00/, cycle-01/, ...  a run folder per cycle: spec, records, checkpoints, model, summary, page
RUN/cycle-NN/raw.safetensors   the raw weights and batch-norm statistics that the next cycle begins with
RUN/summary.json               the last cycle's result, with the metrics of all cycles under "cycles"
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from torch import nn

from ...core.method import METHODS
from ...files.weights import read_weights
from ...training.paths import RAW_WEIGHTS, part_folder
from .protocol import PROTOCOLS, Part, PartSpec, Protocol, Summary

if TYPE_CHECKING:
    from ..spec import Spec

__all__ = ["Cycles", "cycle_sparsities"]

PRUNE = 0.2
MOST_CYCLES = 1000
METRICS = ("sparsity", "target", "test", "validation", "best_epoch", "epochs", "steps", "seconds")
SIZES = ("active_parameters", "sparse_macs", "model_bytes", "sparse_model_bytes")


@final
@PROTOCOLS.register("lrr")
@dataclass(frozen=True)
class Cycles(Protocol):
    """A dense cycle, then others: 20 % of the remaining weights pruned, the learning rate rewound."""

    kind: ClassVar[str] = "cycle"
    trains_itself: ClassVar[bool] = False
    options: ClassVar[Mapping[str, str | None]] = {"cycles": "count"}
    # GMP at constant sparsity never changes its masks: that is LRR.
    usual: ClassVar[Mapping[str, Any]] = {"method": "gmp", "ramp": "constant"}

    prune: float = PRUNE  # part of the remaining weights that is pruned after each cycle
    reset_seed: bool = False  # every cycle sees the batches of the first again, augmented in the same way
    carry: Literal["last", "best"] = "last"  # the epoch whose weights the next cycle begins with

    def __post_init__(self) -> None:
        if not 0 < self.prune < 1:
            raise ValueError(f"prune must be above 0 and below 1, got {self.prune:g}")

    @classmethod
    def resolve(cls, arguments: dict[str, Any], sparse: dict[str, Any]) -> list[str]:
        """Replace the number of cycles by the sparsity that it leads to: the spec holds the sparsity alone."""
        if (count := arguments.pop("count", None)) is None:
            return []
        if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= MOST_CYCLES:
            return [
                f"cycles must be a whole number from 2 (the first one is dense) to {MOST_CYCLES:,}, got {count!r}"
            ]
        prune, asked = arguments.get("prune", PRUNE), sparse.get("sparsity")
        if not isinstance(prune, int | float) or not 0 < prune < 1:
            return []  # reported with the other arguments
        final_sparsity = sparse["sparsity"] = _sparsity_after(count - 1, float(prune))
        if not isinstance(asked, int | float) or math.isclose(float(asked), final_sparsity, rel_tol=1e-9):
            return []
        return [
            f"{count} cycles that prune {prune:g} of the remaining weights end at sparsity {final_sparsity:.6g}, "
            f"not at {float(asked):g}: give the number of cycles or the sparsity"
        ]

    def faults(self, spec: "Spec") -> list[str]:
        faults = []
        name = spec.sparse.method.name
        if spec.sparse.is_dense:
            faults.append("method 'dense' leaves nothing to prune from cycle to cycle: give another method")
        elif not spec.sparse.sparsity:
            faults.append("cycles need a sparsity above 0: without one, the dense cycle is the only one")
        elif _sparsity_after(MOST_CYCLES - 1, self.prune) < spec.sparse.sparsity:
            faults.append(
                f"pruning {self.prune:g} of the remaining weights at a time does not reach sparsity "
                f"{spec.sparse.sparsity:g} in {MOST_CYCLES:,} cycles: prune more, or ask for less"
            )
        if reason := _reason_against(name):
            faults.append(
                f"method {name!r} makes no sense in cycles: {reason}; try gmp (LRR), st3 or feather"
            )
        elif spec.sparse.ramp.name != "constant" or spec.sparse.ramp.arguments:
            faults.append(f"a cycle keeps one sparsity: leave out ramp {spec.sparse.ramp.name!r}")
        return faults

    def parts(self, spec: "Spec") -> list[Part]:
        """Return the cycles: the first one is dense, each later one keeps its own sparsity."""
        assert spec.sparse.sparsity is not None
        parts = []
        for number, sparsity in enumerate(cycle_sparsities(spec.sparse.sparsity, self.prune)):
            own = spec.alone() if number else spec.without_sparsity()
            sparse = own.sparse.model_copy(update={"sparsity": sparsity})
            part = PartSpec(
                title=f"{self.kind} {number}",
                first_epoch=0 if self.reset_seed else number * spec.recipe.total_epochs,
                begins_sparse=number > 0,
                hands_over=self.carry,
            )
            own = own.model_copy(update={"sparse": sparse, "part": part})
            title = f"{part.title}, {f'sparsity {sparsity:.6g}' if number else 'dense'}"
            parts.append(Part(own, title, part_folder(self.kind, number)))
        return parts

    def hand_over(self, model: nn.Module, run: Path, number: int) -> None:
        if number:
            model.load_state_dict(read_weights(run / part_folder(self.kind, number - 1) / RAW_WEIGHTS)[0])

    def sum_up(self, parts: Sequence[Part], summaries: Sequence[Summary]) -> Summary:
        """Return the last cycle's summary with totals: times are sums, epochs count from the first cycle on."""
        *before, last = summaries
        cycles = [
            {"cycle": number, "folder": part.folder} | {key: summary.get(key) for key in (*METRICS, *SIZES)}
            for number, (part, summary) in enumerate(zip(parts, summaries, strict=True))
        ]
        return {
            **super().sum_up(parts, summaries),
            **{key: sum(summary[key] for summary in summaries) for key in ("epochs", "steps")},
            "seconds": round(sum(summary["seconds"] for summary in summaries), 3),
            "best_epoch": last["best_epoch"] + sum(summary["epochs"] for summary in before),
            "cycles": cycles,
        }

    def describe(self, spec: "Spec") -> str:
        assert spec.sparse.sparsity is not None
        words = [
            f"{len(cycle_sparsities(spec.sparse.sparsity, self.prune))} cycles, the first one dense",
            f"{self.prune:g} of the remaining weights pruned after each",
            "the same batches in each" if self.reset_seed else "other batches in each",
        ]
        return ", ".join([*words, *(["begun with the best epoch's weights"] * (self.carry == "best"))])


def cycle_sparsities(target: float, prune: float = PRUNE) -> list[float]:
    """Return the sparsity of every cycle: 0, then `prune` of the remaining weights less each time; last the target.

    >>> [round(sparsity, 4) for sparsity in cycle_sparsities(0.5)]
    [0.0, 0.2, 0.36, 0.488, 0.5]
    """
    found = [0.0]
    # A target of 1 - 0.8^k takes k prunings, not k + 1, however it was rounded.
    while _sparsity_after(len(found), prune) < target - 1e-9 * (1.0 - target):
        found.append(_sparsity_after(len(found), prune))
    return [*found, target]


def _sparsity_after(prunings: int, prune: float) -> float:
    """Return the sparsity after that many prunings: 0.2, not 0.19999999999999996, which may zero one weight less."""
    return round(1.0 - (1.0 - prune) ** prunings, 12)


def _reason_against(name: str) -> str:
    """Return why a method cannot be inside cycles, as the method itself declares; empty if it can."""
    method = METHODS[name]() if name in METHODS else None
    return "" if method is None else method.why_not_in_cycles
