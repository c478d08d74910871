"""What the grid itself costs: the time of many short runs on two workers, over the ideal time.

Each run trains the network of the digits for so many epochs that it takes about a second. Its own time is that from the
start of training to its summary, measured in the worker. The ideal time is the sum of these, divided by the number of
workers. The time measured is that of the whole grid: starting the workers, importing torch in each, handing out the
runs, waiting for the last one, ending the workers.
"""

import argparse
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import record

from st3.experiments.grid.local import LocalWorkers
from st3.experiments.grid.schedule import Job, train_all
from st3.experiments.grid.wanted import Wanted

AT_MOST = 1.25  # times the ideal


def make_jobs(runs: int, epochs: int, folder: Path) -> list[Job]:
    sparse = {"method": "st3", "sparsity": 0.9}
    every = [Wanted("st3", "digits", "digits_cnn", sparse, "digits", epochs, seed=n) for n in range(runs)]
    return [Job(wanted, folder / wanted.folder, machine={"device": "cpu", "threads": 1}) for wanted in every]


def own_seconds(log: Path) -> list[float]:
    """Return the time that each run took in its worker. A line's end may come late: all workers write into one log."""
    return [float(text) for text in re.findall(r": done after ([\d.]+) s", log.read_text(encoding="utf-8"))]


def measure(runs: int, epochs: int, workers: int) -> dict[str, Any]:
    """Train the runs into a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = make_jobs(runs, epochs, folder / "runs")
        began = time.perf_counter()
        with LocalWorkers(workers, 1, folder / "workers.log") as pool:
            train_all(jobs, pool)
        total = time.perf_counter() - began
        seconds = own_seconds(folder / "workers.log")
    assert all(job.state == "done" for job in jobs), [job.message for job in jobs]
    assert len(seconds) == runs
    ideal = sum(seconds) / workers
    return {
        "runs": runs,
        "epochs": epochs,
        "workers": workers,
        "seconds of a run": round(sum(seconds) / runs, 3),
        "ideal seconds": round(ideal, 2),
        "seconds": round(total, 2),
        "over the ideal": round(total / ideal, 3),
        "at most": AT_MOST,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often the whole grid is trained")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=2, help="of each run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", metavar="FILE", help="write the rows as JSON")
    arguments = parser.parse_args()
    rows = [measure(arguments.runs, arguments.epochs, arguments.workers) for _ in range(arguments.rounds)]
    spec = {key: value for key, value in vars(arguments).items() if key != "out"}
    record(arguments.out, spec, rows)


if __name__ == "__main__":
    main()
