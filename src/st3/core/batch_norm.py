"""Batch-norm statistics taken anew from training batches, for weights that were not trained with them.

The running averages of batch norm belong to the weights they were taken with. Where weights change without training (a
mask sampled, weights averaged, a model pruned in one shot), the averages must be taken again, from training pictures:
from test pictures they would tell the network about the test.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .layers.find import unwrap
from .layers.shards import is_sharded, reshard

__all__ = ["reestimate_batch_norm"]


@torch.no_grad()
def reestimate_batch_norm(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    most: int | None = None,
) -> int:
    """Replace the running statistics of every batch norm by their mean over `batches`; return how many were used.

    A batch is a tensor, or a pair or list that begins with it (labels are not looked at); it is moved to the model's
    device. For other batches, `forward(model, batch)` runs the model. `most` limits their number.

    Take training batches, augmented as in training. Every batch counts alike, as with `momentum=None`. Only batch norms
    that keep running statistics are in training mode meanwhile, so dropout is off; modes, momenta, weights, gradients
    and random numbers stay as they are. Without such a norm nothing is read. If a batch fails, the old statistics come
    back.

    Several processes: with DistributedDataParallel or `fully_shard` all of them must call it, each with its own share
    of the batches, and all get the mean over all shares. Where batch norm spans the processes, all need equally many.

    >>> model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout())
    >>> reestimate_batch_norm(model, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
    2
    >>> model[0].running_mean, model[0].running_var
    (tensor([4.]), tensor([2.]))
    """
    if most is not None and most < 1:
        raise ValueError(f"most must be at least 1 batch, or None for all, got {most}")
    inner = unwrap(model)
    norms = [m for m in inner.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not norms:
        return 0
    run = _run_on_device if forward is None else forward
    count, source = 0, iter(batches)
    with _only_in_training(inner, norms), _old_statistics_if_it_fails(norms):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
        while most is None or count < most:
            try:
                batch = next(source)
            except StopIteration:
                break
            run(inner, batch)
            count += 1
        reshard(inner)
        if not (_average_over_processes(norms, count) if _is_spread(model) else count):
            raise ValueError(
                "no batch came, so there are no statistics to take: give training batches (is the iterator used up?)"
            )
    return count


def _run_on_device(model: nn.Module, batch: Any) -> None:
    inputs = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if not isinstance(inputs, Tensor):
        raise TypeError(
            f"a batch must be a tensor, or a pair that begins with one, got {type(batch).__name__}: say how to run the "
            f"model on it with forward=lambda model, batch: ..."
        )
    device = next(tensor.device for tensor in (*model.buffers(), *model.parameters()))
    model(inputs.to(device))


@contextlib.contextmanager
def _only_in_training(model: nn.Module, norms: list[_BatchNorm]) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    momenta = [norm.momentum for norm in norms]
    try:
        model.eval()
        for norm in norms:
            norm.training = True
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


@contextlib.contextmanager
def _old_statistics_if_it_fails(norms: list[_BatchNorm]) -> Iterator[None]:
    held = [[None if buffer is None else buffer.clone() for buffer in _statistics(norm)] for norm in norms]
    try:
        yield
    except BaseException:
        for norm, old in zip(norms, held, strict=True):
            for buffer, before in zip(_statistics(norm), old, strict=True):
                if buffer is not None and before is not None:
                    buffer.copy_(before)
        raise


def _statistics(norm: _BatchNorm) -> list[Tensor | None]:
    return [norm.running_mean, norm.running_var, norm.num_batches_tracked]


def _is_spread(model: nn.Module) -> bool:
    """Tell whether several processes train this model together."""
    is_wrapped = any(isinstance(m, nn.parallel.DistributedDataParallel) for m in model.modules())
    return is_wrapped or any(map(is_sharded, model.parameters()))


def _average_over_processes(norms: list[_BatchNorm], count: int) -> int:
    """Replace each process's means by those over all batches of all processes; return how many these are."""
    buffers = [
        buffer for norm in norms for buffer in (norm.running_mean, norm.running_var) if buffer is not None
    ]
    counted = torch.tensor(count, device=buffers[0].device)
    dist.all_reduce(counted)
    total = int(counted)
    for buffer in buffers if total else ():
        buffer.mul_(count / total)
        dist.all_reduce(buffer)
    return total
