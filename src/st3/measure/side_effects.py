"""Run a model once without side effects: flags, buffers and random numbers stay as they were."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

__all__ = ["without_side_effects"]


@contextmanager
def without_side_effects(model: nn.Module) -> Iterator[None]:
    """Switch `model` to evaluation without gradients for the block, and restore everything after it.

    The flags are set one by one, because the user may have overridden `model.eval()` to merge or freeze something.
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
        torch.backends.mha.set_fastpath_enabled(False)  # a fused operation, whose products cannot be seen
        torch.clear_autocast_cache()  # it may hold casts of weights whose origin is unknown
        with torch.no_grad(), torch.random.fork_rng(devices=gpus), _without_compilation():
            yield
    finally:
        torch.clear_autocast_cache()  # casts made in the block carry no gradient
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for module, was_training in flags:
            module.training = was_training
        for module, name, buffer, before in buffers:
            _restore(module, name, buffer, before)


def _without_compilation() -> AbstractContextManager[object]:
    """Run compiled functions uncompiled; with `fullgraph`, torch refuses to run them under a dispatch mode."""
    # Importing the compiler takes two seconds. If these modules are not loaded, nothing is compiled.
    needed = sys.modules.keys() & {"torch._dynamo", "torch.nn.attention.flex_attention"}
    return torch.compiler.set_stance("force_eager") if needed else nullcontext()


@torch.no_grad()
def _restore(module: nn.Module, name: str, buffer: Tensor, before: Tensor) -> None:
    module._buffers[name] = buffer
    # Only if it changed: a pending backward pass fails if a buffer that it has saved was written to.
    comparable = buffer.layout == torch.strided and not buffer.is_meta
    if comparable and not torch.equal(buffer, before):
        buffer.copy_(before)
