"""Whole states of sharded models and optimizers: gathered to be saved, spread out again when loaded."""

from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

__all__ = ["load_model", "load_optimizer", "model_state", "optimizer_state"]

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
FROM_FIRST = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the whole weights, in the first process; the others get nothing."""
    return get_model_state_dict(model, options=WHOLE)  # type: ignore[return-value]


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return the whole optimizer state by names of parameters, raw weights included, in the first process."""
    return dict(get_optimizer_state_dict(model, optimizer, options=WHOLE))


def load_model(model: nn.Module, state: dict[str, Any]) -> None:
    """Spread the whole weights of the first process over all of them."""
    set_model_state_dict(model, state, options=FROM_FIRST)


def load_optimizer(model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Spread a whole optimizer state, which every process has read, over all of them."""
    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))
