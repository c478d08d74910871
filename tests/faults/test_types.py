"""Values of a wrong type in a run's JSON, without a checksum: a page is written, or the error is one sentence."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.made_up import write_run

from st3.experiments.page import write_figures, write_page
from st3.experiments.plots import labels
from st3.experiments.results import ResultsError, Run

NAMES = ("spec.json", "summary.json", "versions.json", "epochs.jsonl", "steps.jsonl", "layers.jsonl")
WRONG: tuple[Any, ...] = (
    None,
    "x",
    "",
    [],
    {},
    [1],
    {"a": 1},
    True,
    -1,
    0,
    0.5,
    7,
    1e308,
    -1e308,
    10**400,
    "\ud800",
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) inside a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in pairs for place in ((value, key), *places(inner))]


def spoil(path: Path, chance: random.Random) -> str:
    """Put a wrong value somewhere into the file, and return what was done."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = chance.randrange(len(lines))
    content = json.loads(lines[number])
    container, key = chance.choice(places(content))
    if chance.random() < 0.2:
        del container[key]
        done = f"without {key}"
    else:
        container[key] = chance.choice(WRONG)
        done = f"{key}: {str(container[key])[:20]!r}"
    lines[number] = json.dumps(content)
    path.write_text("".join(f"{line}\n" for line in lines))
    return done


def check(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    with_twin = chance.random() < 0.3
    write_run(folder, 3, layers=2, planned=chance.choice([3, 5]), with_twin=with_twin)
    files = [folder / name for name in NAMES if (folder / name).exists()]
    done = [f"{path.name}, {spoil(path, chance)}" for path in chance.sample(files, chance.choice([1, 1, 2]))]
    try:
        error = draw(folder)
    except Exception as crash:
        raise AssertionError(f"seed {seed}: {'; '.join(done)}") from crash
    assert not error or (str(folder) in error and "\n" not in error)


def draw(folder: Path) -> str:
    """Write the pages and figures of a run; return the sentence with which that is refused."""
    try:
        labels([Run.open(folder), Run.open(folder)])
        write_page(folder)
        write_figures(folder)
    except ResultsError as error:
        return str(error)
    return ""


def test_wrong_types_are_reported_in_one_sentence(tmp_path: Path) -> None:
    for seed in range(30):
        check(tmp_path / str(seed), seed)


@pytest.mark.slow
def test_many_wrong_types_are_reported_in_one_sentence(tmp_path: Path) -> None:
    for seed in range(1000, 5000):
        check(tmp_path / str(seed), seed)
