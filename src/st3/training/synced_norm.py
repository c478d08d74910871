"""Batch norm over the batch of all processes, on any device.

torch's own SyncBatchNorm knows accelerators only. With this one, several CPU processes see the statistics that one
process would see, so that their number does not change the result.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["SyncedBatchNorm", "synchronise_norms"]


def synchronise_norms(model: nn.Module, device: torch.device) -> nn.Module:
    """Return `model` with batch norms that span all processes; names of parameters and buffers stay."""
    if device.type != "cpu":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-any-return]
    for module in model.modules():
        if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            module.__class__ = SyncedBatchNorm  # the parameters stay those that an optimizer may hold
    return model


class SyncedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """As nn.BatchNorm, with the mean and variance of all processes' pictures."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # the class it replaces was made for this input

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        axes = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        # Statistics of half-precision activations, too, are taken in full.
        wide = x if x.dtype == torch.float64 else x.float()
        count = torch.tensor([x.numel() // x.shape[1]], dtype=wide.dtype, device=x.device)
        dist.all_reduce(count)
        mean = _sum(wide.sum(axes)) / count
        centred = wide - mean.view(shape)
        variance = _sum(centred.square().sum(axes)) / count
        self._remember(mean.detach(), variance.detach(), float(count))
        normal = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)

    def _remember(self, mean: Tensor, variance: Tensor, count: float) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (count / max(count - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var), momentum)


def _sum(x: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    """The sum over all processes. Each one's loss depends on it, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total
