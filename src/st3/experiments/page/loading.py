"""What to do with a run: load its model, evaluate it, continue it."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...files.weights import WeightsError, read_weights
from ...models import MODELS
from ..about import check_metadata
from ..arguments import add_sizes
from ..results import Run

__all__ = ["commands", "load_code", "model_file"]


def model_file(run: Run) -> str | None:
    """Return the path of the model's weights, or None if they are not written yet."""
    return str(run.model_path) if run.is_finished or run.model_path.is_file() else None


def load_code(run: Run, weights: str) -> str:
    """Return a Python program that loads the model with its trained `weights`."""
    module, _, function = run.model.rpartition(":")
    if run.model.startswith("<"):
        build = f"model = ...  # build the {run.model.strip('<>')} as for training"
        return "\n".join(["from safetensors.torch import load_file", "", build, *_last_lines(weights)])
    if module:
        source, make = f"from {module} import {function.partition('.')[0]}", function
    else:
        source, make = "from st3.models import MODELS", f"MODELS[{_quote(run.model)}]"
    try:
        build = f"model = {make}({_call(_arguments(run, weights))})"
    except WeightsError as error:
        return f"# {error}"
    return "\n".join(["from safetensors.torch import load_file", source, "", build, *_last_lines(weights)])


def _last_lines(weights: str) -> list[str]:
    return [f"model.load_state_dict(load_file({_quote(weights)}))", "model.eval()"]


def commands(run: Run) -> list[tuple[str, str]]:
    """Return (purpose, command) for what can be done with the run from the command line."""
    folder = shlex.quote(str(run.path))
    if run.is_finished:
        return [(f"Measure the {run.task.score.title} of the model again:", f"st3 eval {folder}")]
    if run.part_of:
        folder = shlex.quote(str(run.path.parent))  # it continues with the run that it belongs to
    return [("Continue from the last checkpoint:", f"st3 train --run {folder} --resume")]


def _arguments(run: Run, weights: str) -> dict[str, Any]:
    """Return the arguments in the spec, and the sizes that follow from the data and are in the file."""
    model = run.spec.get("model")
    asked = model.get("arguments") if isinstance(model, dict) else None
    arguments = asked if isinstance(asked, dict) else {}
    task, make = run.task, _find_function(run.model)
    classes, size = task.class_names[0], task.size_names[0]
    numbers = _read_sizes(weights, (classes, size))
    if make is None or len(numbers) < 2:
        return {**numbers, **arguments}
    return add_sizes(make, arguments, task, numbers[classes], numbers[size])


def _find_function(name: str) -> Callable[..., Any] | None:
    """Return what builds the model, if it is imported already: writing a page must not run the user's modules."""
    module, _, path = name.rpartition(":")
    if not module:
        return next((MODELS[known] for known in MODELS if known == name), None)
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None


def _read_sizes(weights: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the sizes of these names that are in the file; WeightsError if it is damaged."""
    about = check_metadata(read_weights(Path(weights))[1])[0] if Path(weights).is_file() else {}
    model = about.get("model", {})
    return {key: model[key] for key in names if key in model}


def _quote(words: str) -> str:
    """Return a Python string in double quotes: JSON strings are Python strings, too."""
    return json.dumps(words, ensure_ascii=False)


def _call(arguments: dict[str, Any]) -> str:
    if all(name.isidentifier() for name in arguments):
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"**{arguments!r}"
