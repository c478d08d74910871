"""ProbMask: a probability per weight, learned with the weights (Zhou et al., CVPR 2021).

    W_sparse = W * m,  m = sigmoid(T * (logit(p) + z))                forward in training; z logistic noise, drawn anew
    dL/dW    = dL/dW_sparse * m                                       backward
    dL/dp    = dL/dW_sparse * W * m (1 - m) T (1/p + 1/(1 - p))       with 1e-20 added to p and to 1 - p
    p       <- Adam, then clamp(p - v, 0, 1), v >= 0 such that the probabilities add up to the weights to be kept
    T        = 1 / (0.97 (1 - t) + 0.03)                              t from 0 to 1 over the search

Each step averages the gradients of K = 2 masks: two forward and backward passes of half the loss, on the same batch or
on two micro-batches; any number works. Every call of the model in training mode draws masks, so a loop that accumulates
gradients needs no change. Probabilities begin at 1; the budget follows the ramp (usually from .16 to .6 of the run).

What the model holds: between steps, and in every pass without gradients or in evaluation mode, plain sparse weights:
the most probable ones, as many as the ramp leaves, of equal probability the largest. From a forward pass in training to
the next `optimizer.step` it holds W * m, which is not sparse. Save between steps. After the search, for the last part
`finetune` of the run, the mask is fixed and the weights train as usual, in one pass per step; batch norm's statistics
become those of the sparse network by these training batches, never by test data. Two forward passes before one
backward pass are refused by autograd, because the second one draws new masks: put both into one module.

Different from the authors' program: the mask at the end is that of the most probable weights, an exact count;
`final="random"` draws it from the probabilities as they do (there the best of ten, here the first), and the sparsity
then lies around the target, with a variance of at most the sum of p (1 - p). Gradient clipping sees the norm of the
weights' gradients and scales those of the probabilities by the same factor; the authors clip one norm over both.
Logistic noise comes from one uniform number instead of two Gumbel ones: the same distribution. Budget, temperature and
the rate of the probabilities change by step instead of by epoch. All processes draw the same masks. The search and the
ramp's times are parts of one run, whose last tenth fine-tunes the weights at the rates of its own schedule; the authors
search for 300 epochs, to which the times .16 and .6 refer, and then fine-tune for 20 more at a rate of 1e-3. The recipe
`cifar-probmask` has their batch size (256), rate and weight decay.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from ..core.choices import check_count
from ..core.families.random_mask import RandomMask
from ..core.method import METHODS

__all__ = ["ProbMask"]

EPSILON = 1e-20
COLDEST = 0.03  # temperature at the end of the search; 1 at its beginning


@final
@METHODS.register("probmask")
@dataclass(frozen=True)
class ProbMask(RandomMask):
    """Random masks by a learned probability per weight, projected onto the budget; several passes per step."""

    usual_times: ClassVar[tuple[float, float] | None] = (0.16, 0.6)
    why_not_in_cycles: ClassVar[str] = (
        "it ends by sampling a mask and hands no trained weights to the next cycle, so there is nothing to rank"
    )
    passes: int = 2  # masks per step in `st3 train`; a loop of your own makes as many passes as it likes
    lr: float = 6e-3  # of the probabilities, at first; falls along half a cosine
    finetune: float = 0.1  # part of the run after the search
    final: Literal["most probable", "random"] = "most probable"  # the mask that is fixed at the end
    seed: int = 0  # of the masks

    def __post_init__(self) -> None:
        check_count(self.passes, "passes", least=1, meaning="a number of masks per step")
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, got {self.lr:g}")
        if not 0 <= self.finetune < 1:
            raise ValueError(f"finetune is a part of the run, at least 0 and below 1, got {self.finetune:g}")
        if self.final not in ("most probable", "random"):
            raise ValueError(f"final must be 'most probable' or 'random', got {self.final!r}")

    def first_variable(self, raw: Tensor) -> Tensor:
        return torch.ones_like(raw)

    def search_end(self, total_steps: int) -> int:
        return total_steps - int(self.finetune * total_steps)

    def relaxed_mask(self, probability: Tensor, uniform: Tensor, progress: float) -> Tensor:
        smallest = torch.finfo(uniform.dtype).eps / 4  # rand may return 0
        noise = torch.logit(uniform, eps=smallest)
        logit = torch.log(probability + EPSILON) - torch.log(1 - probability + EPSILON)
        return torch.sigmoid((logit + noise) * _sharpness(progress))

    def slope(self, mask: Tensor, probability: Tensor, progress: float) -> Tensor:
        odds = 1 / (probability + EPSILON) + 1 / (1 - probability + EPSILON)
        return mask * (1 - mask) * _sharpness(progress) * odds

    def adam_settings(self, progress: float) -> dict[str, float]:
        return {"lr": self.lr * 0.5 * (1 + math.cos(math.pi * progress))}

    def final_mask(self, probability: Tensor, best: Tensor, uniform: Tensor) -> Tensor:
        return uniform < probability if self.final == "random" else best

    def slack(self, numel: int, sparsity: float) -> int:
        """Four standard deviations of a count of random masks, at the most."""
        if self.final == "most probable":
            return 0
        return math.ceil(4 * math.sqrt(numel * sparsity * (1 - sparsity)))


def _sharpness(progress: float) -> float:
    """Return the inverse temperature.

    >>> _sharpness(0.0), round(_sharpness(299 / 300), 2)
    (1.0, 30.09)
    """
    return 1 / ((1 - COLDEST) * (1 - progress) + COLDEST)
