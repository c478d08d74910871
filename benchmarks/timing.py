"""Interleaved timing: contestants take turns in one process, so that a busy machine slows all of them alike."""

import gc
import json
import statistics
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

import st3
from st3.atomic import write_text
from st3.processor import instruction_sets, processor


def take_turns(
    contestants: dict[str, Callable[[], Any]], rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of each contestant in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.disable()
    try:
        for turn in range(warm_up + rounds):
            for name, run in contestants.items():
                begin = time.perf_counter()
                run()
                if turn >= warm_up:
                    seconds[name].append(time.perf_counter() - begin)
    finally:
        gc.enable()
    return seconds


def ratio(seconds: dict[str, list[float]], of: str, to: str) -> dict[str, float]:
    """Return the ratio of the minima and of the medians."""
    return {
        "min": round(min(seconds[of]) / min(seconds[to]), 4),
        "median": round(statistics.median(seconds[of]) / statistics.median(seconds[to]), 4),
    }


def environment() -> dict[str, Any]:
    """Return what a ratio depends on."""
    return {
        "st3": st3.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": processor(),
        "instruction sets": instruction_sets(),
    }


def record(
    path: str | None,
    spec: dict[str, Any],
    rows: list[dict[str, Any]],
    shown: list[dict[str, Any]] | None = None,
    methods: Collection[str] = (),
) -> None:
    """Print the rows (or those `shown`) and, given a path, write them with their spec.

    With `methods`, rows of other methods in the file stay, and so does their environment. A new row that was measured
    in another one carries it.
    """
    for row in rows if shown is None else shown:
        print(json.dumps(row))
    if path is None:
        return
    target, where = Path(path), environment()
    if methods and target.exists():
        stored = json.loads(target.read_text())
        kept = [row for row in stored["rows"] if row["method"] not in methods]
        if kept and stored["environment"] != where:
            rows, where = [{**row, "environment": where} for row in rows], stored["environment"]
        rows = [*kept, *rows]
    text = json.dumps({"spec": spec, "environment": where, "rows": rows}, indent=1) + "\n"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, text)
