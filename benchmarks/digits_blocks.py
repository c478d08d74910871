"""What blocks of four input channels cost in accuracy: the same method with single weights and with blocks, on digits.

    python benchmarks/digits_blocks.py --folder runs/digits-blocks --output results/digits-blocks.json

    gmp     magnitude pruning by a ramp; a block's score is its root mean square. The first layer, which has one input
            channel, stays dense in both
    s_ste   ST-3 for groups (soft threshold, straight-through): of 32 consecutive input channels 4 weights stay, or one
            block of 4 by its norm; layers whose channels 32 does not divide stay dense

The recipe is `digits`, 30 epochs. A run that is interrupted goes on where it was.
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar

import torch
from digits_methods import results
from timing import record
from torch import Tensor

import st3
from st3.core.families.grouped import GroupMethod, in_groups, n_largest
from st3.core.families.mask_view import MaskView, Moment
from st3.core.families.masked import MaskMethod
from st3.core.method import METHODS
from st3.methods import SSTE

BLOCK = 4


@METHODS.register("gmp_blocks")
@dataclass(frozen=True)
class BlockGMP(MaskMethod):
    """GMP whose masks consist of blocks: all four weights take the block's score."""

    def is_due(self, moment: Moment) -> bool:
        return moment.asked > 0

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        kept = moment.largest([block_scores(view) for view in views], moment.asked)
        return [view.mask & mask for view, mask in zip(views, kept, strict=True)]


def block_scores(view: MaskView) -> Tensor:
    """Return the root mean square of each weight's block."""
    scores = torch.empty_like(view.weight)
    blocks = in_groups(view.weight, view.layer, BLOCK)
    in_groups(scores, view.layer, BLOCK).copy_(
        blocks.square().mean(-1, keepdim=True).sqrt().expand_as(blocks)
    )
    return scores


@METHODS.register("s_ste_blocks")
@dataclass(frozen=True)
class BlockSSTE(GroupMethod):
    """S-STE with blocks: the norm of every block shrinks by the largest norm of those that are zeroed."""

    has_scale: ClassVar[bool] = True
    n: int = BLOCK  # active weights per group
    m: int = 8 * BLOCK  # weights per group

    def sparse_weight(self, raw: Tensor, active: Tensor, out: Tensor) -> None:
        norms = raw.unflatten(-1, (-1, BLOCK)).norm(dim=-1)
        threshold = norms.masked_fill(n_largest(norms, self.n // BLOCK), 0.0).amax(-1, keepdim=True)
        factor = torch.where(norms > threshold, 1.0 - threshold / norms, 0.0)
        torch.mul(raw, factor.repeat_interleave(BLOCK, -1), out=out)

    def first_scale(self, raw: Tensor, sparse: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        return SSTE.first_scale(self, raw, sparse, total)  # type: ignore[arg-type]


GROUPS = {"arguments": {"n": BLOCK, "m": 8 * BLOCK}}
CASES: list[tuple[str, float, dict[str, Any]]] = [
    (method, sparsity, {"method": method, "sparsity": sparsity, "exclude": ["first layer"]})
    for sparsity in (0.9, 0.95)
    for method in ("gmp", "gmp_blocks")
] + [(method, 0.875, {"method": method, "sparsity": 0.875} | GROUPS) for method in ("s_ste", "s_ste_blocks")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/digits-blocks"))
    parser.add_argument("--rounds", type=int, default=3, help="seeds (default 3)")
    parser.add_argument("--epochs", type=int, help="default: the recipe's 30")
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", st3.errors.LayerCollapseWarning)
    rows = []
    for name, sparsity, sparse in CASES:
        pairs = results(name, sparsity, sparse, given.folder, given.rounds, given.epochs)
        found = [accuracy for accuracy, _ in pairs]
        row = {
            "method": name,
            "sparsity": sparsity,
            "sparsity reached": [round(each, 4) for _, each in pairs],
        }
        row |= {"test accuracy": round(mean(found), 4), "seeds": found}
        row |= {"standard deviation": round(stdev(found), 4) if len(found) > 1 else 0.0}
        rows.append(row)
    spec = {"data": "digits", "recipe": "digits", "epochs": given.epochs or 30, "seeds": given.rounds}
    record(given.output, spec, rows)


if __name__ == "__main__":
    main()
