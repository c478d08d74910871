"""A spec in a few lines, printed before a run begins."""

from pathlib import Path

from ..experiments.build import build_method
from ..experiments.protocols import PROTOCOLS
from ..experiments.sparse_choices import choose_ramp
from ..experiments.spec import Spec
from ..training.process import Process
from ..training.recipe import Recipe

__all__ = ["spec_text"]


def spec_text(spec: Spec, folder: Path, process: Process) -> str:
    """Return the lines that a run prints first."""
    lines = [
        ("data", _with(spec.data.name, spec.data.options)),
        ("model", _with(spec.model.name, spec.model.arguments)),
        ("sparse", _sparse(spec)),
        ("protocol", _protocol(spec)),
        ("recipe", _recipe(spec)),
        ("seeds", f"initial weights {spec.seeds.init}, data {spec.seeds.data}"),
        ("machine", _machine(spec, process)),
        ("run", str(folder)),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in lines)


def _with(name: str, arguments: dict[str, object]) -> str:
    return ", ".join([name, *(f"{key} {value}" for key, value in arguments.items())])


def _sparse(spec: Spec) -> str:
    sparse = spec.sparse
    if sparse.is_dense:
        return "no: dense"
    text = _with(sparse.method.name, sparse.method.arguments)
    if sparse.sparsity is None:
        text += ", no target: the sparsity is learned"
    else:
        allocation = _with(sparse.allocation.name, sparse.allocation.arguments)
        text += f", sparsity {sparse.sparsity:g}, allocation {allocation}, {_ramp(spec)}"
    text += f", blocks of {sparse.block}" if sparse.block > 1 else ""
    return text + (f", excluded: {', '.join(sparse.exclude)}" if sparse.exclude else "")


def _ramp(spec: Spec) -> str:
    """Return the ramp, with its times in epochs and whose they are."""
    choice, method = spec.sparse.ramp, build_method(spec.sparse)
    ramp = choose_ramp(choice.name, choice.arguments, method, spec.recipe)
    start, end = (getattr(ramp, name, None) for name in ("start", "end"))
    if start is None or end is None:
        return _with(choice.name, choice.arguments)
    owner = "" if choice.arguments else " (the recipe's)" if method.usual_times is None else " (the method's)"
    owner = " (the method's)" if method.own_ramp is not None else owner
    epochs = [_epoch(time * spec.recipe.epochs) for time in (start, end)]
    return f"{choice.name} ramp from epoch {epochs[0]} to {epochs[1]}{owner}"


def _protocol(spec: Spec) -> str:
    name = spec.protocol.name
    words = PROTOCOLS[name](**spec.protocol.arguments).describe(spec)
    return f"{name}: {words}" if words else name


def _epoch(number: float) -> str:
    """Return three significant digits, or all digits before the point: epochs of scaled recipes have many."""
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def _recipe(spec: Spec) -> str:
    recipe, optimizer = spec.recipe, spec.recipe.optimizer
    parts = [
        f"{recipe.name}: {recipe.epochs} epoch{'s'[: recipe.epochs > 1]}{_later(recipe)}",
        f"batch {recipe.batch_size}",
        f"{optimizer.name} {optimizer.lr:g} ({recipe.rate.kind})",
        f"momentum {optimizer.momentum:g}{' (nesterov)' if optimizer.nesterov else ''}",
        f"weight decay {optimizer.decay_at(spec.sparse.sparsity or 0.0):g}",
    ]
    if recipe.clip_norm is not None:
        parts.append(f"clipped at {recipe.clip_norm:g}")
    if recipe.gradient_rms is not None:
        parts.append(f"gradients scaled to a root mean square of {recipe.gradient_rms:g}")
    if recipe.label_smoothing:
        parts.append(f"label smoothing {recipe.label_smoothing:g}")
    return ", ".join(parts)


def _later(recipe: Recipe) -> str:
    """Return the epochs after the schedule."""
    frozen = f" + {recipe.freeze_epochs} with fixed masks" if recipe.freeze_epochs else ""
    return frozen + (f" + {recipe.epochs} from the best weights, the rate rewound" if recipe.rewind else "")


def _machine(spec: Spec, process: Process) -> str:
    machine = spec.machine
    parts = [str(process.device), machine.precision]
    parts += [f"{process.ranks} processes"] if process.ranks > 1 else []
    parts += [name for name in ("compile", "deterministic", "sharded") if getattr(machine, name)]
    parts += [f"{machine.workers} workers"] if machine.workers else []
    return ", ".join(parts)
