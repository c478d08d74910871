"""The folder of a run, if the user gives none, and the error if there is no run in it."""

import itertools
import re
from pathlib import Path

from ..experiments.folder import RunFolderError
from ..experiments.protocols import PROTOCOLS
from ..experiments.spec import Spec
from ..registry import closest
from ..training.paths import SPEC

__all__ = ["no_run_to_resume", "usual_folder"]

RUNS = Path("runs")


def usual_folder(spec: Spec, parent: Path = RUNS) -> Path:
    """Return a folder that does not exist yet, named after what is trained."""
    asked = None if spec.sparse.is_dense else spec.sparse.sparsity
    sparsity = () if asked is None else (f"{asked:g}",)
    blocks = () if spec.sparse.block == 1 else (f"block{spec.sparse.block}",)
    protocol = () if PROTOCOLS[spec.protocol.name].trains_itself else (spec.protocol.name,)
    parts = (
        spec.data.name,
        spec.model.name,
        *protocol,
        spec.sparse.method.name,
        *sparsity,
        *blocks,
        f"seed{spec.seeds.init}",
    )
    name = "-".join(re.sub(r"[^\w.]+", "-", part) for part in parts)
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(parent / name for name in names if not (parent / name).exists())


def no_run_to_resume(folder: Path) -> RunFolderError:
    """Return the error for a folder without a run; it names runs nearby."""
    there = {
        path.parent.name: path.parent
        for place in dict.fromkeys([folder, folder.parent, RUNS])
        if place.is_dir()
        for path in sorted(place.glob(f"*/{SPEC}"))
    }
    near = [str(there[name]) for name in closest(folder.name, there)] or [
        str(path) for path in there.values()
    ][:3]
    advice = (
        f"nearby: {', '.join(near)}" if near else "there is none nearby either; start one without --resume"
    )
    return RunFolderError(f"there is no run in {folder} to resume; {advice}")
