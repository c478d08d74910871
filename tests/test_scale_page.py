"""The tables of docs/scale.md are what their program writes today, and rest on counts that the formula gives."""

import importlib
import json
from pathlib import Path

import pytest

import st3

ROOT = Path(__file__).parents[1]


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("scale_page")


def test_the_tables_are_what_the_program_writes(program):
    generated = importlib.import_module("generated")
    text = program.PAGE.read_text(encoding="utf-8")
    assert generated.filled(text, program.tables(), program.PROGRAM) == text, "run: python docs/scale_page.py"


def test_everything_that_was_counted_is_what_the_formula_says(program):
    rows = json.loads(program.MEASURED.read_text(encoding="utf-8"))["rows"]
    assert {row["ranks"] for row in rows} == {2, 4}
    for row in rows:
        assert row["weights"] > 100_000_000
        counts = [
            row["kept"],
            *(x for event in row.values() if isinstance(event, dict) for x in event.values()),
        ]
        assert all(pair["measured"] == pair["formula"] for pair in counts if isinstance(pair, dict))


def test_the_shapes_are_those_of_the_published_models(program):
    weights = [sum(layer.numel for layer in st3.layers(network.build())) for network in program.NETWORKS]
    total = [sum(p.numel() for p in network.build().parameters()) for network in program.NETWORKS]
    # Without norms: 2 x blocks + 1 of them, as wide as the model.
    norms = [(2 * network.blocks + 1) * network.width for network in program.NETWORKS]
    assert [t + n for t, n in zip(total, norms, strict=True)] == [
        1_235_814_400,
        6_738_415_616,
        68_976_648_192,
    ]
    assert weights == [t - n.vocabulary * n.width for t, n in zip(total, program.NETWORKS, strict=True)]
