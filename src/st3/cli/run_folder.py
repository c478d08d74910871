"""Which folder a run goes to."""

import itertools
import re
from pathlib import Path

from ..experiments.folder import RunFolderError
from ..experiments.spec import Spec
from ..registry import closest

__all__ = ["no_run_to_resume", "usual_folder"]

RUNS = Path("runs")


def usual_folder(spec: Spec, parent: Path = RUNS) -> Path:
    """Return a folder that is not there yet, named after what is trained."""
    sparsity = () if spec.sparse.is_dense else (f"{spec.sparse.sparsity:g}",)
    method = spec.sparse.method if spec.cycles is None else f"lrr-{spec.sparse.method}"
    parts = (spec.data.name, spec.model.name, method, *sparsity, f"seed{spec.seeds.init}")
    name = "-".join(re.sub(r"[^\w.]+", "-", part) for part in parts)
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(parent / name for name in names if not (parent / name).exists())


def no_run_to_resume(folder: Path) -> RunFolderError:
    """Return the error that says so, with the runs nearby."""
    there = {
        path.parent.name: path.parent
        for place in dict.fromkeys([folder, folder.parent, RUNS])
        if place.is_dir()
        for path in sorted(place.glob("*/spec.json"))
    }
    near = [str(there[name]) for name in closest(folder.name, there)] or [
        str(path) for path in there.values()
    ][:3]
    advice = (
        f"nearby: {', '.join(near)}" if near else "there is none nearby either; start one without --resume"
    )
    return RunFolderError(f"there is no run in {folder} to resume; {advice}")
