"""The name of every file and folder that a run leaves behind, in one place.

RUN/spec.json        everything that determines the run
RUN/epochs.jsonl     one line per finished epoch; steps.jsonl and layers.jsonl likewise
RUN/checkpoints/     what is needed to resume the run
RUN/summary.json     the result, once the run is finished, beside model.safetensors and report.html
RUN/dense/           a folder of the same kind for another part of the run, here its dense twin
"""

import re

__all__ = [
    "CHECKPOINTS",
    "EPOCHS",
    "FIGURES",
    "LAYERS",
    "LOCK",
    "MODEL",
    "RAW_WEIGHTS",
    "RECORDS",
    "REPORT",
    "SESSIONS",
    "SPARSE_MODEL",
    "SPEC",
    "STEPS",
    "SUMMARY",
    "TENSORBOARD",
    "VERSIONS",
    "checkpoint_name",
    "is_checkpoint",
    "is_part_folder",
    "part_folder",
]

SPEC = "spec.json"
SUMMARY = "summary.json"
VERSIONS = "versions.json"  # software and machine of the last session
SESSIONS = "sessions.jsonl"  # the same of every session
STEPS, EPOCHS, LAYERS = RECORDS = ("steps.jsonl", "epochs.jsonl", "layers.jsonl")
CHECKPOINTS = "checkpoints"
MODEL = "model.safetensors"
SWITCHES = "switches.json"  # switches per weight, on request
SPARSE_MODEL = "model.sparse.safetensors"
RAW_WEIGHTS = "raw.safetensors"  # what the next part of the run begins with
REPORT = "report.html"
FIGURES = "figures"
TENSORBOARD = "tensorboard"
LOCK = ".lock"


def checkpoint_name(step: int) -> str:
    """Return the name of a checkpoint's file; by name they sort by step."""
    return f"step-{step:09d}.pt"


def is_checkpoint(name: str) -> bool:
    """Return whether `checkpoint_name` can have made this name."""
    return re.fullmatch(r"step-\d{9}\.pt", name) is not None


def part_folder(kind: str, number: int | None = None) -> str:
    """Return the name of a part's folder inside the run's folder.

    >>> part_folder("dense"), part_folder("cycle", 3)
    ('dense', 'cycle-03')
    """
    return kind if number is None else f"{kind}-{number:02}"


def is_part_folder(name: str, kind: str) -> bool:
    """Return whether `part_folder` can have made this name for a part of that kind."""
    return bool(kind) and re.fullmatch(rf"{re.escape(kind)}(-\d{{2,}})?", name) is not None
