"""How to go on from a run: load its model, evaluate it, continue it."""

import json
import shlex
import sys
from collections.abc import Callable
from typing import Any

from ...models import MODELS
from ..arguments import handed_over
from ..results import Run

__all__ = ["commands", "load_code", "model_file"]


def model_file(run: Run) -> str | None:
    """Return the path of the model's weights, or None if they are not written yet."""
    path = run.path / str((run.summary or {}).get("model") or "model.safetensors")
    return str(path) if run.is_finished or path.is_file() else None


def load_code(run: Run, weights: str) -> str:
    """Return a Python program that loads the model with its trained `weights`."""
    module, _, function = run.model.rpartition(":")
    if run.model.startswith("<"):
        made = f"model = ...  # build the {run.model.strip('<>')} as for training"
        return "\n".join(["from safetensors.torch import load_file", "", made, *_tail(weights)])
    if module:
        source, build = f"from {module} import {function.partition('.')[0]}", function
    else:
        source, build = "from st3.models import MODELS", f"MODELS[{_quoted(run.model)}]"
    made = f"model = {build}({_call(_arguments(run, weights))})"
    return "\n".join(["from safetensors.torch import load_file", source, "", made, *_tail(weights)])


def _tail(weights: str) -> list[str]:
    return [f"model.load_state_dict(load_file({_quoted(weights)}))", "model.eval()"]


def commands(run: Run) -> list[tuple[str, str]]:
    """Return (what it does, command) for what can be done with the run from the command line."""
    folder = shlex.quote(str(run.path))
    if run.is_finished:
        return [("Measure the accuracy of the model again:", f"st3 eval {folder}")]
    if run.spec.get("cycle") is not None:
        folder = shlex.quote(str(run.path.parent))  # a cycle goes on with the run that it belongs to
    return [("Continue from the last checkpoint:", f"st3 train --run {folder} --resume")]


def _arguments(run: Run, weights: str) -> dict[str, Any]:
    """The spec holds what the user asked for; the file also what follows from the data: classes and channels."""
    model = run.spec.get("model")
    asked = model.get("arguments") if isinstance(model, dict) else None
    arguments = asked if isinstance(asked, dict) else {}
    numbers, make = _from_data(weights), _function(run.model)
    if make is None or not {"classes", "channels"} <= numbers.keys():
        return {**numbers, **arguments}
    return handed_over(make, arguments, numbers["classes"], numbers["channels"])


def _function(name: str) -> Callable[..., Any] | None:
    """Return what builds the model, if it is at hand: a page imports no module of the user's."""
    module, _, path = name.rpartition(":")
    if not module:
        return next((MODELS[known] for known in MODELS if known == name), None)
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None


def _from_data(weights: str) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="numpy") as file:
            model = json.loads((file.metadata() or {}).get("st3", "{}")).get("model")
    except (OSError, SafetensorError, ValueError):
        return {}  # the page is about the run; who loads a damaged file will be told then
    return (
        {key: model[key] for key in ("classes", "channels") if key in model}
        if isinstance(model, dict)
        else {}
    )


def _quoted(words: str) -> str:
    """A JSON string is a Python string too, always in double quotes."""
    return json.dumps(words, ensure_ascii=False)


def _call(arguments: dict[str, Any]) -> str:
    if all(name.isidentifier() for name in arguments):
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"**{arguments!r}"
