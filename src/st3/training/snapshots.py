"""Save and restore everything that training needs to continue bit for bit."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.layers.find import unwrap
from ..core.state.store import RAW, entries
from . import sharded_state
from .checkpoint import CheckpointFolder
from .job import Job, Progress
from .paths import SPEC
from .switches import SwitchCounter, Switches

__all__ = ["Snapshots"]

FORMAT = 2  # of checkpoints; 1 had an identity that counted circumstances and usual values
RENAMED = {"best_accuracy": "best_score"}  # in the progress of older checkpoints
PARTS = (
    "identity", "processes", "is_sharded", "progress", "tally", "randomness", "scaler", "masks", "model", "optimizer",
    "best",
)  # fmt: skip


class Snapshots:
    """Takes checkpoints of a job and its progress, and keeps the weights of the best epoch."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        identity: str,
        *,
        keep: int = 2,
        minutes: float = 20.0,
        keeps_best_raw: bool = False,
        switch_windows: int = 0,
    ) -> None:
        self.job, self.minutes, self.keeps_best_raw = job, minutes, keeps_best_raw
        self.identity = identity  # of spec and data: checkpoints with another identity are refused
        self.best: dict[str, Tensor] = {}  # weights of the best epoch, on the CPU
        self.best_raw: dict[str, Tensor] = {}  # its raw weights, if the next part begins with them
        self.checkpoints = CheckpointFolder(folder, keep)
        self.switches = None if job.sparsifier is None else Switches(job.sparsifier.layers)
        self.counter: SwitchCounter | None = None  # on request
        if switch_windows and job.sparsifier is not None:
            self.counter = SwitchCounter(job.sparsifier.layers, switch_windows, job.recipe.total_epochs)
        self._last = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough to write another one within an epoch."""
        return self.job.process.is_first and time.monotonic() - self._last > 60 * self.minutes

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; all processes must call this."""
        job, process = self.job, self.job.process
        randomness = process.gather(_randomness(process.device))
        tally = process.gather(progress.tally.cpu())
        model, optimizer = self.model_weights(), self._optimizer_state()
        if process.is_first:
            assert randomness is not None
            assert tally is not None
            state = {
                "format": FORMAT,
                "identity": self.identity,
                "processes": process.ranks,
                "is_sharded": job.is_sharded,
                "progress": {k: v for k, v in vars(progress).items() if k != "tally"},
                "tally": tally,
                "randomness": randomness,
                "scaler": job.scaler.state_dict(),
                "masks": {} if self.switches is None or job.is_sharded else self.switches.masks,
                "model": model,
                "optimizer": optimizer,
                "best": self.best,
                "best_raw": self.best_raw,
                "switch_counts": None if self.counter is None else self.counter.state(),
            }
            self.checkpoints.save(state, progress.step(len(job.train)))
        process.wait()
        self._last = time.monotonic()

    def restore(self, progress: Progress) -> bool:
        """Restore the newest checkpoint, `progress` included; return whether there was one."""
        job, process = self.job, self.job.process
        found = self.checkpoints.newest() if process.is_first else None
        path = process.share(found and found[0])  # all processes continue from the same one
        if path is None:
            return False
        state = found[1] if found else self.checkpoints.read(path)
        _require_parts(state, path)
        if state["identity"] != self.identity:
            raise ValueError(
                f"checkpoint {path} belongs to another spec or other data: {SPEC} or the data have changed since "
                f"it was written; restore them, or start again with another --run"
            )
        if state["is_sharded"] != job.is_sharded:
            how = "with --sharded" if state["is_sharded"] else "without --sharded"
            raise ValueError(f"checkpoint {path} was written {how}: resume it the same way")
        self._load(state["model"], state["optimizer"])
        job.scaler.load_state_dict(state["scaler"])
        self.best, self.best_raw = state["best"], state.get("best_raw", {})
        stored = {RENAMED.get(key, key): value for key, value in state["progress"].items()}
        for key in vars(progress).keys() & stored.keys():
            setattr(progress, key, stored[key])
        if state["processes"] == process.ranks:
            progress.tally = state["tally"][process.rank].to(process.device)
            _set_randomness(state["randomness"][process.rank], process.device)
        else:  # another number of processes: keep the sums, start new random numbers
            total = torch.stack(state["tally"]).sum(0)
            progress.tally = (total if process.is_first else torch.zeros_like(total)).to(process.device)
        if self.switches is not None:
            self.switches.masks = {name: mask.to(process.device) for name, mask in state["masks"].items()}
        if self.counter is not None:
            if not state.get("switch_counts"):
                raise ValueError(
                    f"checkpoint {path} holds no counts of switches, which record.switch_windows asks for: leave it "
                    f"out, or start again with another --run"
                )
            try:
                self.counter.load_state(state["switch_counts"])
            except ValueError as error:
                raise ValueError(f"checkpoint {path}: {error}") from None
        return True

    def keep_best(self) -> None:
        """Keep the current weights as those of the best epoch; all processes must call this."""
        self.best = _copies(self.model_weights())
        if self.keeps_best_raw:
            self.best_raw = _copies(self.raw_weights())

    def load_best(self) -> None:
        """Load the weights of the best epoch into the model; to continue, the sparsifier must adopt them."""
        if self.job.is_sharded:
            sharded_state.load_model(self.job.model, self.best)
        else:
            unwrap(self.job.model).load_state_dict(self.best)

    def final_raw_weights(self) -> dict[str, Tensor]:
        """Return what the next part of the run begins with: the current raw weights, or those of the best epoch."""
        return self.best_raw if self.keeps_best_raw else _copies(self.raw_weights())

    def raw_weights(self) -> dict[str, Tensor]:
        """Return all weights and buffers, raw instead of sparse; all processes must call this."""
        model, optimizer = self.job.model, self.job.optimizer
        weights, held = dict(self.model_weights()), {}
        kept = dict(entries(optimizer.param_groups, optimizer.state))
        names: dict[int, list[str]] = {}  # of each parameter; tied weights have several
        for name, parameter in unwrap(model).named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
            held[name] = kept.get(parameter, {})
        if self.job.is_sharded:
            whole = sharded_state.optimizer_state(model, optimizer)
            held = dict(entries(whole.get("param_groups", ()), whole.get("state", {})))
        for group in names.values():
            raw = next((held[name][RAW] for name in group if RAW in held.get(name, {})), None)
            weights |= {} if raw is None else dict.fromkeys(group, raw)
        return weights

    def model_weights(self) -> dict[str, Tensor]:
        """Return all weights and buffers under their plain names; all processes must call this."""
        if self.job.is_sharded:
            return sharded_state.model_state(self.job.model)
        return dict(unwrap(self.job.model).state_dict())

    def _optimizer_state(self) -> dict[str, Any]:
        if self.job.is_sharded:
            return sharded_state.optimizer_state(self.job.model, self.job.optimizer)
        return self.job.optimizer.state_dict()

    def _load(self, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        if self.job.is_sharded:
            # The optimizer first: torch loads it by an empty step, during which weights and state must belong together.
            sharded_state.load_optimizer(self.job.model, self.job.optimizer, optimizer)
            sharded_state.load_model(self.job.model, model)
        else:
            unwrap(self.job.model).load_state_dict(model)
            self.job.optimizer.load_state_dict(optimizer)


def _require_parts(state: Any, path: Path) -> None:
    """Raise if `save` cannot have written this."""
    if not isinstance(state, dict) or "format" not in state:
        raise ValueError(f"{path} is not a checkpoint of st3 train: delete it to continue from an older one")
    if state["format"] != FORMAT:
        raise ValueError(
            f"checkpoint {path} has format {state['format']}, but this version of st3 reads {FORMAT}: finish the run "
            f"with the version that began it, or start again with another --run"
        )
    if missing := [name for name in PARTS if name not in state]:
        raise ValueError(
            f"checkpoint {path} lacks {', '.join(missing)}: delete it to continue from an older one"
        )


def _copies(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}


def _randomness(device: torch.device) -> list[Tensor]:
    """Return the state of the random number generators: of the CPU and, if there is one, of the CUDA device."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _set_randomness(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)
