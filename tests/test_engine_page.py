"""The engine's tables against other engines are what their program writes today, and say what was measured."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("engine_page")


@pytest.fixture
def table(program):
    return importlib.import_module("engine_table")


def test_the_pages_hold_what_the_program_writes(program):
    filled = importlib.import_module("generated").filled
    for page, names in program.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert filled(text, program.tables(names), program.PROGRAM) == text, "run: python docs/engine_page.py"


DIFFERENCES = {"float32": 3.2e-7, "int8": 0.0216}  # from torch's output


def row(network, sparsity, masks, own, int8, absent=(), in_torch=()):
    """A row in which the fastest float32 engine takes 60 ms, in minimum and in median."""
    taken = {
        "st3 engine float32": own,
        "torch float32": 90,
        "ONNX Runtime float32": 60,
        "OpenVINO int8": int8,
    }
    engines = [
        {
            "name": name,
            "precision": precision,
            "min_ms": ms,
            "median_ms": ms,
            "difference": DIFFERENCES[precision],
        }
        for name, ms in taken.items()
        for precision in name.split()[-1:]
    ]
    return {
        "row": f"rivals:{network}:{sparsity}:{masks}:b1:t1",
        "engines": engines,
        "absent": dict(absent),
        "rival": "ONNX Runtime float32",
        "processor": "Some Processor, model 1",
        "clock": "wall",
        "rounds": 20,
        "in torch": dict(in_torch),
    }


def test_speeds_are_relative_to_the_fastest_float32_engine_and_published_sparsities_are_named(table):
    rows = [
        row("resnet50", 0.8, "uniform", own=30, int8=20),
        row("resnet50", 0.9, "uniform", own=15, int8=20, absent={"OpenVINO bfloat16": "no instructions"}),
        row("resnet50", 0.89, "sigma", own=12, int8=20),
    ]
    assert table.rivals_table(rows).splitlines() == [
        "| network | dense, OpenVINO int8 | st3, 80 % | st3, 90 % | ahead of dense int8 |",
        "| --- | --- | --- | --- | --- |",
        "| ResNet-50, uniform masks | 3.00 / 3.00 | 2.00 / 2.00 | 4.00 / 4.00 | from 90 % on |",
        "| ResNet-50, masks as ST-3 sigma's |  |  | 5.00 / 5.00 (89 %) | at all measured |",
    ]
    short = table.rivals_table(rows, {("sigma", table.OWN)}).splitlines()
    assert short[2:] == ["| ResNet-50, masks as ST-3 sigma's |  |  | 5.00 / 5.00 (89 %) | at all measured |"]
    assert table.remarks(rows).splitlines() == [
        "OpenVINO bfloat16 was not measured: no instructions.",
        "The engine's outputs differ from torch's by at most 3e-07 of the largest value, "
        "those of dense int8 engines by 2.2 % to 2.2 %.",
        "Each engine was called 20 times.",
        "The processor: Some Processor, model 1.",
    ]


def test_an_engine_that_cannot_run_one_network_is_not_measured_there_and_steps_in_torch_are_counted(table):
    rows = [
        row("gpt2", 0.8, "uniform", own=30, int8=20, in_torch={"embedding": 1, "attention": 12}),
        row("resnet50", 0.8, "uniform", own=30, int8=20),
    ]
    rows[0]["engines"].pop()
    assert table.rivals_table(rows).splitlines()[2:] == [
        "| GPT-2, uniform masks | not measured | 2.00 / 2.00 |  |",
        "| ResNet-50, uniform masks | 3.00 / 3.00 | 2.00 / 2.00 | not up to 80 % |",
    ]
    assert "Steps in torch: 13 in GPT-2." in table.remarks(rows).splitlines()


def test_times_of_the_process_are_said_to_be_that(table):
    busy = row("resnet50", 0.8, "uniform", own=30, int8=20) | {"clock": "processor"}
    assert table.remarks([busy]).endswith("not of the clock: the machine was busy with other work.")


def test_the_engine_is_ahead_only_from_where_no_higher_sparsity_falls_behind(table):
    slow, fast = {"own": 25, "int8": 20}, {"own": 15, "int8": 20}

    def measured(**times):
        rows = [row("resnet50", 0.8 + 0.05 * n, "uniform", **each) for n, each in enumerate(times.values())]
        return table.overtaking(rows)

    assert measured(a=slow, b=slow, c=fast) == "from 90 % on"
    assert measured(a=fast, b=slow, c=fast) == "from 90 % on"
    assert measured(a=fast, b=fast, c=slow) == "not up to 90 %"
    assert measured(a=fast, b=fast, c=fast) == "at all measured"
    tie = row("resnet50", 0.8, "uniform", own=15, int8=20)
    tie["engines"][0]["median_ms"] = 21
    assert table.overtaking([tie]) == "not up to 80 %"
