"""TopK: the largest weights of every matrix, chosen anew after each step ("Weight-sparse transformers have
interpretable circuits", Gao et al., 2025).

    W_sparse = W                                                      forward: there is no other copy of the weights
    dL/dW    = dL/dW_sparse                                           backward: of all weights, zeroed ones too
    W       <- W * [|W| > th_l]                                       after each optimizer step

th_l leaves the same fraction f of the weights of every layer. f falls linearly from 1 to the target between 1 % and
50 % of the run. The optimizer moves a zeroed weight from 0 like any other, with its momentum; it stays if that one step
brings it among the largest, and is 0 again otherwise. `per_neuron` spares the largest weights of every neuron,
so that none dies (the authors spare 4); others of the same layer go instead. A neuron is an output of the layer or,
where the layer has more inputs than outputs, an input: both matrices of a transformer's MLP then spare its hidden
neurons. Behind a batch norm, a dead filter has gradients that drown all others when they are clipped together: in such
networks use `per_neuron`, or an allocation such as "erk" that spares small layers.

The authors train with Adam and epsilon 0.1, scale the gradients to a root mean square of 1, and divide the learning
rate by the square root of f: the recipe `language-topk` does so too. Without it, this is the method alone.

Different from the authors' program: all layers together lose floor((n - 1) S) + 1 of their n weights, shared equally
and rounded; there each keeps int(f n). Embeddings stay dense unless `include` names them, and biases always are; there
both are cut. The output projection of an attention layer with as many inputs as outputs spares its outputs; there, its
inputs. AdamW decays the weights before its step; there they decay after the cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.choices import check_count
from ..core.families.mask_view import MaskView, Moment, first_largest, without_ties
from ..core.families.masked import MaskMethod
from ..core.layers.layer import Layer
from ..core.method import METHODS

__all__ = ["TopK"]


@final
@METHODS.register("topk")
@dataclass(frozen=True)
class TopK(MaskMethod):
    """All but the largest weights of every layer are zeroed after each step; all get gradients, so any may return."""

    usual_allocation: ClassVar[str] = "uniform"
    usual_ramp: ClassVar[str] = "linear"
    usual_times: ClassVar[tuple[float, float] | None] = (0.01, 0.5)
    trains_zeroed: ClassVar[bool] = True
    restores: ClassVar[bool] = True
    per_neuron: int = 0  # weights that every neuron keeps at the least

    def __post_init__(self) -> None:
        check_count(self.per_neuron, "per_neuron", least=0, meaning="the weights that every neuron keeps")

    @property
    def clears_momentum(self) -> bool:
        return False

    @property
    def needs_whole_layers(self) -> bool:
        return self.per_neuron > 0

    def check(self, views: Sequence[MaskView], moment: Moment) -> None:
        if not self.per_neuron:
            return
        kept = moment.largest([view.weight for view in views], moment.target)
        for view, mask in zip(views, kept, strict=True):
            neurons, size = _neurons(view.layer).shape
            needed, left = neurons * min(self.per_neuron, size), int(mask.sum())
            if needed > left:
                raise ValueError(
                    f"per_neuron={self.per_neuron} asks for {needed:,} weights in layer {view.layer.name!r} with its "
                    f"{neurons:,} neurons, but a sparsity of {moment.target:g} leaves it {left:,}: lower per_neuron or "
                    f"the sparsity, or exclude the layer"
                )

    def is_due(self, moment: Moment) -> bool:
        return moment.asked > 0 or moment.asked_before > 0

    def first_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        return self.next_masks(views, moment)

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        masks = moment.largest([view.weight for view in views], moment.asked)
        if not self.per_neuron or not moment.asked:
            return masks
        return [_spare(view, mask, self.per_neuron) for view, mask in zip(views, masks, strict=True)]


def _spare(view: MaskView, mask: Tensor, least: int) -> Tensor:
    """Return a mask of as many weights that has the `least` largest of every neuron, and the largest of the others."""
    magnitude = without_ties(view.weight).abs().flatten()
    places = _neurons(view.layer).to(magnitude.device)
    order = magnitude[places].argsort(dim=1, descending=True, stable=True)
    spared = places.gather(1, order[:, :least]).flatten()
    scores = magnitude.index_add(0, spared, magnitude.max().add(1.0).expand(spared.numel()))
    return first_largest(scores, int(mask.sum())).view(mask.shape)


def _neurons(layer: Layer) -> Tensor:
    """Return where in the flat weight the weights of each neuron lie, one row per neuron.

    >>> from torch import nn
    >>> from st3.core.layers.find import find_layers
    >>> up, down = find_layers(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))
    >>> _neurons(up), _neurons(down)
    (tensor([[0, 1],
            [2, 3],
            [4, 5]]), tensor([[0, 3],
            [1, 4],
            [2, 5]]))
    """
    filters, inputs = layer.filters, layer.inputs
    places = torch.arange(layer.numel).view(layer.shape)
    experts = layer.shape[0] if filters.experts else 1
    axes = filters.axes
    if inputs is not None and experts * layer.shape[inputs] > filters.count(layer.shape):
        axes = (0, inputs) if filters.experts else (inputs,)
    elif filters.groups > 1:  # a transposed convolution: blocks of inputs, each with outputs of its own
        places, axes = places.unflatten(0, (filters.groups, -1)), (0, filters.axis + 1)
    return places.movedim(axes, tuple(range(len(axes)))).flatten(0, len(axes) - 1).flatten(1)
