"""The full state of sharded models and optimizers: gathered for saving, distributed again when loaded.

`torch.distributed.checkpoint` is imported by the functions: it takes a second that other runs need not pay.
"""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = ["load_model", "load_optimizer", "model_state", "optimizer_state"]


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the full weights in the first process; the others get nothing."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=options)  # type: ignore[return-value]


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return the full optimizer state by parameter name, raw weights included, in the first process."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return dict(get_optimizer_state_dict(model, optimizer, options=options))


def load_model(model: nn.Module, state: dict[str, Any]) -> None:
    """Distribute the full weights of the first process over all processes."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)


def load_optimizer(model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Distribute a full optimizer state, which every process has read, over all processes."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))
