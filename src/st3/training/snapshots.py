"""Everything that a run needs to go on bit for bit, taken and put back."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.layers.find import unwrap
from . import sharded_state
from .checkpoint import CheckpointFolder
from .job import Job, Progress
from .switches import Switches

__all__ = ["Snapshots"]

FORMAT = 1
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
        hands_on_best: bool = False,
    ) -> None:
        self.job, self.minutes, self.hands_on_best = job, minutes, hands_on_best
        self.identity = identity  # of spec and data: a checkpoint of others is not taken for ours
        self.best: dict[str, Tensor] = {}  # weights of the best epoch, on the CPU
        self.best_raw: dict[str, Tensor] = {}  # the raw ones, if they are to be handed on
        self.checkpoints = CheckpointFolder(folder, keep)
        self.switches = None if job.sparsifier is None else Switches(job.sparsifier.layers)
        self._last = time.monotonic()

    @property
    def are_due(self) -> bool:
        """Whether the last checkpoint lies so far back that one within an epoch is worth its time."""
        return self.job.process.is_first and time.monotonic() - self._last > 60 * self.minutes

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; all processes must call it."""
        job, process = self.job, self.job.process
        randomness = process.gather(_randomness(process.device))
        tally = process.gather(progress.tally.cpu())
        model, optimizer = self._weights()
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
            }
            self.checkpoints.save(state, progress.step(len(job.train)))
        process.wait()
        self._last = time.monotonic()

    def restore(self, progress: Progress) -> bool:
        """Put back the newest checkpoint, into `progress` too; return whether there was one."""
        job, process = self.job, self.job.process
        found = self.checkpoints.newest() if process.is_first else None
        path = process.share(found and found[0])  # all processes go on from the same one
        if path is None:
            return False
        state = found[1] if found else self.checkpoints.read(path)
        _require_parts(state, path)
        if state["identity"] != self.identity:
            raise ValueError(
                f"checkpoint {path} is of another spec or other data: spec.json or the pictures were changed since it "
                f"was written; put them back, or start anew with another --run"
            )
        if state["is_sharded"] != job.is_sharded:
            told = "with --sharded" if state["is_sharded"] else "without --sharded"
            raise ValueError(f"checkpoint {path} was written {told}: resume it the same way")
        self._put_back(state["model"], state["optimizer"])
        job.scaler.load_state_dict(state["scaler"])
        self.best, self.best_raw = state["best"], state.get("best_raw", {})
        for key in vars(progress).keys() & state["progress"].keys():
            setattr(progress, key, state["progress"][key])
        if state["processes"] == process.ranks:
            progress.tally = state["tally"][process.rank].to(process.device)
            _set_randomness(state["randomness"][process.rank], process.device)
        else:  # another number of processes: sums are kept, random numbers begin anew
            total = torch.stack(state["tally"]).sum(0)
            progress.tally = (total if process.is_first else torch.zeros_like(total)).to(process.device)
        if self.switches is not None:
            self.switches.masks = {name: mask.to(process.device) for name, mask in state["masks"].items()}
        return True

    def keep_best(self) -> None:
        """Keep the weights as they are as those of the best epoch; all processes must call it."""
        self.best = _copies(self.model_weights())
        if self.hands_on_best:
            self.best_raw = _copies(self.raw_weights())

    def load_best(self) -> None:
        """Put the weights of the best epoch into the model (its training state is lost)."""
        if self.job.is_sharded:
            sharded_state.load_model(self.job.model, self.best)
        else:
            unwrap(self.job.model).load_state_dict(self.best)

    def handed_on(self) -> dict[str, Tensor]:
        """Return what another training may begin with: the raw weights as they are, or those of the best epoch."""
        return self.best_raw if self.hands_on_best else _copies(self.raw_weights())

    def raw_weights(self) -> dict[str, Tensor]:
        """Return all weights and buffers, raw weights in the place of sparse ones; all processes must call it."""
        model, optimizer = self.job.model, self.job.optimizer
        weights, held = dict(self.model_weights()), {}
        names: dict[int, list[str]] = {}  # of each parameter: tied weights have several
        for name, parameter in unwrap(model).named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
            held[name] = optimizer.state.get(parameter, {})
        if self.job.is_sharded:
            held = sharded_state.optimizer_state(model, optimizer).get("state", {})
        for group in names.values():
            raw = next((held[name]["raw"] for name in group if "raw" in held.get(name, {})), None)
            weights |= {} if raw is None else dict.fromkeys(group, raw)
        return weights

    def model_weights(self) -> dict[str, Tensor]:
        """Return all weights and buffers under their plain names; all processes must call it."""
        if self.job.is_sharded:
            return sharded_state.model_state(self.job.model)
        return dict(unwrap(self.job.model).state_dict())

    def _weights(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.job.is_sharded:
            return sharded_state.model_state(self.job.model), sharded_state.optimizer_state(
                self.job.model, self.job.optimizer
            )
        return self.model_weights(), self.job.optimizer.state_dict()

    def _put_back(self, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        if self.job.is_sharded:
            # The optimizer first: to load it torch makes an empty step, which must find the weights that it belongs to.
            sharded_state.load_optimizer(self.job.model, self.job.optimizer, optimizer)
            sharded_state.load_model(self.job.model, model)
        else:
            unwrap(self.job.model).load_state_dict(model)
            self.job.optimizer.load_state_dict(optimizer)


def _require_parts(state: Any, path: Path) -> None:
    """Raise if this is not what `save` has written."""
    if not isinstance(state, dict) or "format" not in state:
        raise ValueError(f"{path} is no checkpoint of st3 train: delete it to go on from an older one")
    if state["format"] != FORMAT:
        raise ValueError(f"checkpoint {path} has format {state['format']}, this version reads {FORMAT}")
    if missing := [name for name in PARTS if name not in state]:
        raise ValueError(
            f"checkpoint {path} lacks {', '.join(missing)}: delete it to go on from an older one"
        )


def _copies(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}


def _randomness(device: torch.device) -> list[Tensor]:
    """Return the state of the random numbers of the CPU and, if it is another one, of the device."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _set_randomness(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)
