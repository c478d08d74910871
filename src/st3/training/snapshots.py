"""Everything that a run needs to go on bit for bit, taken and put back."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.layers import unwrap
from ..files.weights import read_weights, write_weights
from . import sharded_state
from .checkpoint import CheckpointFolder
from .job import Job, Progress
from .switches import Switches

__all__ = ["Snapshots"]

FORMAT = 1


class Snapshots:
    """Takes checkpoints of a job and its progress, and keeps the weights of the best epoch."""

    def __init__(self, job: Job, folder: Path, *, keep: int = 2, minutes: float = 20.0) -> None:
        self.job, self.folder, self.minutes = job, folder, minutes
        self.checkpoints = CheckpointFolder(folder, keep)
        self.switches = None if job.sparsifier is None else Switches(job.sparsifier.layers)
        self._last = time.monotonic()

    def are_due(self) -> bool:
        """Return whether the last checkpoint lies so far back that one within an epoch is worth its time."""
        is_late = self.job.process.is_first and time.monotonic() - self._last > 60 * self.minutes
        # Only sharded weights need every process to take part, and then all must agree.
        return self.job.process.any(is_late)

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
                "processes": process.ranks,
                "is_sharded": job.is_sharded,
                "progress": {k: v for k, v in vars(progress).items() if k != "tally"},
                "tally": tally,
                "randomness": randomness,
                "scaler": job.scaler.state_dict(),
                "masks": {} if self.switches is None or job.is_sharded else self.switches.masks,
                "model": model,
                "optimizer": optimizer,
            }
            self.checkpoints.save(state, progress.step(len(job.train)))
            best = self.best_path(progress.best_epoch)
            for old in self.folder.glob("best-*.safetensors"):
                if old != best:
                    old.unlink()
        process.wait()
        self._last = time.monotonic()

    def restore(self, progress: Progress) -> bool:
        """Put back the newest checkpoint, into `progress` too; return whether there was one."""
        found = self.checkpoints.newest()
        if found is None:
            return False
        path, state = found
        job, process = self.job, self.job.process
        if state["format"] != FORMAT:
            raise ValueError(f"checkpoint {path} has format {state['format']}, this version reads {FORMAT}")
        if state["is_sharded"] != job.is_sharded:
            told = "with --sharded" if state["is_sharded"] else "without --sharded"
            raise ValueError(f"checkpoint {path} was written {told}: resume it the same way")
        self._put_back(state["model"], state["optimizer"])
        job.scaler.load_state_dict(state["scaler"])
        for key, value in state["progress"].items():
            setattr(progress, key, value)
        if state["processes"] == process.ranks:
            progress.tally = state["tally"][process.rank].to(process.device)
            _set_randomness(state["randomness"][process.rank], process.device)
        else:  # another number of processes: sums are kept, random numbers begin anew
            total = torch.stack(state["tally"]).sum(0)
            progress.tally = (total if process.is_first else torch.zeros_like(total)).to(process.device)
        if self.switches is not None:
            self.switches.masks = {name: mask.to(process.device) for name, mask in state["masks"].items()}
        return True

    def best_path(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch:05d}.safetensors"

    def save_best(self, progress: Progress) -> None:
        """Keep the weights as they are as those of the best epoch. Older ones go with the next checkpoint."""
        weights = self.model_weights()
        if self.job.process.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_weights(self.best_path(progress.best_epoch), weights, {})

    def load_best(self, progress: Progress) -> None:
        """Put the weights of the best epoch into the model (its training state is lost)."""
        weights = read_weights(self.best_path(progress.best_epoch))[0]
        if self.job.is_sharded:
            sharded_state.load_model(self.job.model, weights)
        else:
            unwrap(self.job.model).load_state_dict(weights)

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
            sharded_state.load_model(self.job.model, model)
            sharded_state.load_optimizer(self.job.model, self.job.optimizer, optimizer)
        else:
            unwrap(self.job.model).load_state_dict(model)
            self.job.optimizer.load_state_dict(optimizer)


def _randomness(device: torch.device) -> list[Tensor]:
    """Return the state of the random numbers of the CPU and, if it is another one, of the device."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _set_randomness(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)
