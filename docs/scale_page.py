"""Write the tables of docs/scale.md: what sparse training costs large models, and what was counted.

    python docs/scale_page.py

The first table is computed from shapes (st3.core.costs), the second from results/benchmarks/scale.json. A test fails
while the page says something else than this program would write.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from generated import fill_tables
from torch import nn

from st3.core.costs import sharded_costs
from st3.core.layers.find import layers

DOCS = Path(__file__).parent
PAGE = DOCS / "scale.md"
PROGRAM = "docs/scale_page.py"
MEASURED = DOCS.parent / "results" / "benchmarks" / "scale.json"
DENSE = 16  # bytes per parameter: itself, its gradient and AdamW's two moments in float32
GATHERED = 2  # bytes per parameter that fully_shard sends, in bfloat16


@dataclass(frozen=True)
class Decoder:
    """The shapes of a Llama model."""

    name: str
    ranks: tuple[int, ...]
    width: int
    blocks: int
    inner: int
    keys: int  # outputs of the key and value projections
    vocabulary: int
    is_tied: bool = False

    def build(self) -> nn.Module:
        """Return its weights of two axes, on the meta device; a tied head is an embedding."""
        with torch.device("meta"):
            block = [(self.width, self.width), (self.width, self.keys), (self.width, self.keys)]
            block += [
                (self.width, self.width),
                (self.width, self.inner),
                (self.width, self.inner),
                (self.inner, self.width),
            ]
            shapes = block * self.blocks + [(self.width, self.vocabulary)] * (not self.is_tied)
            linear = [nn.Linear(inputs, outputs, bias=False) for inputs, outputs in shapes]
            return nn.ModuleList([nn.Embedding(self.vocabulary, self.width), *linear])


NETWORKS = [
    Decoder("1 B (Llama 3.2)", (1, 8), 2048, 16, 8192, 512, 128256, is_tied=True),
    Decoder("7 B (Llama 2)", (8, 32), 4096, 32, 11008, 4096, 32000),
    Decoder("70 B (Llama 2)", (64, 256), 8192, 80, 28672, 1024, 32000),
]


def expected_table() -> str:
    """Return bytes per rank of large models, with ST-3 and with masks."""
    title = [
        "model",
        "ranks",
        "sparsified",
        "dense training",
        "raw weights",
        "masks",
        "dense traffic per step",
    ]
    rows = [[*title, "ST-3, `global` or `sigma`", "ST-3, `erk` or `uniform`"]]
    for network in NETWORKS:
        model = network.build()
        covered, total = layers(model), sum(p.numel() for p in model.parameters())
        for ranks in network.ranks:
            pooled, masks = (sharded_costs(covered, ranks, method=method) for method in ("st3", "gmp"))
            single = sharded_costs(covered, ranks, allocation="erk")
            row = [
                network.name,
                str(ranks),
                f"{sum(layer.numel for layer in covered):,}",
                _size(DENSE * total / ranks),
            ]
            row += [_size(pooled.kept), _size(masks.kept), _size(3 * (ranks - 1) / ranks * GATHERED * total)]
            rows.append(
                row + [f"{_size(c.step.sent(ranks))} in {c.step.collectives:,}" for c in (pooled, single)]
            )
    return _table(rows)


def measured_table() -> str:
    """Return what processes have sent, beside the formula."""
    rows = [
        [
            "weights",
            "method, allocation",
            "ranks",
            "kept by rank 0",
            "event",
            "collectives",
            "payload per rank",
            "sent by all ranks",
        ]
    ]
    for found in json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]:
        what = [
            f"{found['weights']:,}",
            f"{found['method']}, {found['allocation']}",
            str(found["ranks"]),
            _pair(found["kept"]),
        ]
        for event in ("attach", "first cut", "cut", "cut and look"):
            rows.append([*what, event, *(_pair(counts) for counts in found[event].values())])
    return _table(rows)


def tables() -> dict[str, str]:
    """Return the tables by their names in the page."""
    return {"expected": expected_table(), "measured": measured_table()}


def _pair(counts: dict[str, int]) -> str:
    """Return a number that was measured, and the formula's where that is another."""
    measured, formula = counts["measured"], counts["formula"]
    return f"{measured:,}" if measured == formula else f"{measured:,} (formula {formula:,})"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _table(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


if __name__ == "__main__":
    fill_tables(PAGE, tables(), PROGRAM)
