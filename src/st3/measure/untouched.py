"""Run a model once for its own sake and leave no trace: flags, buffers and random numbers as they were."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

__all__ = ["untouched"]


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Switch `model` to evaluation without gradients for the block, and put everything back after it.

    The flags are set one by one: `model.eval()` may be the user's own, and merge or freeze something.
    """
    flags = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    fast_path = torch.backends.mha.get_fastpath_enabled()
    gpus = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
    try:
        for module, _ in flags:
            module.training = False
        torch.backends.mha.set_fastpath_enabled(False)  # one fused operation, with the weights out of sight
        torch.clear_autocast_cache()  # holds casts of weights made before we began to look
        with torch.no_grad(), torch.random.fork_rng(devices=gpus), _without_compilation():
            yield
    finally:
        torch.clear_autocast_cache()  # and our casts carry no gradient
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for module, was_training in flags:
            module.training = was_training
        for module, name, buffer, before in buffers:
            _restore(module, name, buffer, before)


def _without_compilation() -> AbstractContextManager[object]:
    """Run compiled functions as they were written; torch refuses some of them (`fullgraph`) while we look on."""
    # The compiler takes two seconds to import; without these modules, nothing compiles.
    needed = sys.modules.keys() & {"torch._dynamo", "torch.nn.attention.flex_attention"}
    return torch.compiler.set_stance("force_eager") if needed else nullcontext()


@torch.no_grad()
def _restore(module: nn.Module, name: str, buffer: Tensor, before: Tensor) -> None:
    module._buffers[name] = buffer
    # Only if need be: writing to a buffer that a pending backward pass has saved would make that pass fail.
    comparable = buffer.layout == torch.strided and not buffer.is_meta
    if comparable and not torch.equal(buffer, before):
        buffer.copy_(before)
