"""Batch norm over the batch of all processes, on any device.

torch's own SyncBatchNorm supports accelerators only. With this one, several CPU processes use the statistics that one
process would use, so that their number does not change the result.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["SyncedBatchNorm", "synchronise_norms"]


def synchronise_norms(model: nn.Module, device: torch.device) -> nn.Module:
    """Return `model` with batch norms that span all processes; parameters and names stay the same."""
    if device.type != "cpu":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-any-return]
    for module in model.modules():
        if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            module.__class__ = SyncedBatchNorm  # a new module would have parameters that no optimizer holds
    return model


class SyncedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """nn.BatchNorm with the mean and variance over the pictures of all processes."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # the class that this one replaced has checked it

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        axes = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        # Half-precision activations need statistics in full precision.
        wide = x if x.dtype == torch.float64 else x.float()
        count = torch.tensor([x.numel() // x.shape[1]], dtype=wide.dtype, device=x.device)
        dist.all_reduce(count)
        mean = _sum(wide.sum(axes)) / count
        centred = wide - mean.view(shape)
        variance = _sum(centred.square().sum(axes)) / count
        self._update_running(mean.detach(), variance.detach(), float(count))
        normal = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)

    def _update_running(self, mean: Tensor, variance: Tensor, count: float) -> None:
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
    """The sum over all processes. The loss of each process depends on it, so gradients are summed as well."""

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
