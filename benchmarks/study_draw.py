"""How long `st3 study draw` takes with many finished runs, over the time that Python needs to import torch.

One run is trained; the others are copies of its folder under other seeds. Both contestants are processes of their own
that take turns.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import ratio, record, take_turns

from st3.experiments.grid.wanted import Wanted
from st3.training.paths import SPEC, SUMMARY, VERSIONS
from st3.training.sealed import parse, seal

STUDY = """\
data = "digits"
model = "digits_cnn"
epochs = 1
methods = ["st3"]
sparsities = [0.9]
seeds = {seeds}
x = "sparsity"
"""


def st3(*words: str | Path, folder: Path) -> str:
    """Run the command in a process of its own, and return what it printed."""
    command = [sys.executable, "-m", "st3", *map(str, words)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def make_runs(count: int, folder: Path) -> Path:
    """Train one run in `folder`, copy it under other seeds, and return the study of all of them."""
    study = folder / "many.toml"
    study.write_text(STUDY.format(seeds=[0]))
    st3("study", "run", study, "--out", folder / "out", folder=folder)
    (first,) = (folder / "out" / "runs").glob("*-st3-*")  # there is a dense one, too
    spec = parse((first / SPEC).read_bytes())
    for seed in range(1, count):
        wanted = Wanted(
            "st3", "digits", "digits_cnn", {"method": "st3", "sparsity": 0.9}, "digits", 1, seed=seed
        )
        copy = first.with_name(wanted.folder)
        copy.mkdir()
        (copy / SPEC).write_text(json.dumps(seal({**spec, "seeds": {"init": seed, "data": seed}})))
        for name in (SUMMARY, VERSIONS):
            shutil.copy(first / name, copy / name)
    study.write_text(STUDY.format(seeds=list(range(count))))
    return study


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", metavar="FILE", help="write the row as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = make_runs(arguments.runs, folder)
        draw = ("study", "draw", study, "--out", folder / "out")
        printed = st3(*draw, folder=folder)
        assert f"{arguments.runs + 1} runs" in printed, printed
        contestants = {
            "draw": lambda: st3(*draw, folder=folder),
            "import torch": lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True),
        }
        seconds = take_turns(contestants, arguments.rounds)
    row = {
        "runs": arguments.runs,
        "seconds of draw": [round(value, 2) for value in seconds["draw"]],
        "seconds of importing torch": [round(value, 2) for value in seconds["import torch"]],
        "over importing torch": ratio(seconds, "draw", "import torch"),
    }
    record(arguments.out, {"runs": arguments.runs, "rounds": arguments.rounds}, [row])


if __name__ == "__main__":
    main()
