"""GraNet and GMP against their papers' loops, written out by hand: weights and momentum equal bit for bit."""

import math

import pytest
import torch
from torch import nn

import st3

STEPS, EVERY, SPARSITY = 60, 5, 0.9
LR, MOMENTUM, DECAY = 0.05, 0.9, 1e-3


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 6)).double()


def batch(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(16, 12, generator=generator).double(), torch.randint(6, (16,), generator=generator)


def backward(model, number):
    model.zero_grad()
    pictures, labels = batch(number)
    nn.functional.cross_entropy(model(pictures), labels).backward()


def zeros_asked(total, step, start=0.0, end=0.5):
    first, last = int(start * STEPS + 0.5), int(end * STEPS + 0.5)
    t = min(1.0, max(0.0, (step - first) / (last - first)))
    sparsity = SPARSITY * (1 - (1 - t) ** 3)
    return math.floor((total - 1) * sparsity) + 1 if sparsity else 0


class Textbook:
    """SGD with momentum, masks over all weights of two axes, and what is done to both by hand."""

    def __init__(self, lr=LR):
        self.lr = lr
        self.model = make_model()
        self.weights = [p for p in self.model.parameters() if p.dim() > 1]
        self.masks = [torch.ones_like(w, dtype=torch.bool) for w in self.weights]
        self.momenta = {}

    @torch.no_grad()
    def step(self):
        for p in self.model.parameters():
            grad = p.grad
            index = next((i for i, w in enumerate(self.weights) if w is p), None)
            if index is not None:
                grad = torch.where(self.masks[index], grad, 0.0)
            grad = grad.add(p, alpha=DECAY)
            last = self.momenta.get(p)
            self.momenta[p] = grad.clone() if last is None else last.mul(MOMENTUM).add(grad)
            p.add_(self.momenta[p], alpha=-self.lr)

    @torch.no_grad()
    def apply_masks(self, clears_momentum=True):
        for weight, mask in zip(self.weights, self.masks, strict=True):
            weight[~mask] = 0.0
            if clears_momentum:
                self.momenta[weight][~mask] = 0.0

    @torch.no_grad()
    def prune(self, zeros, never_returns=True):
        """Keep the largest magnitudes over all layers."""
        order = torch.cat([w.abs().flatten() for w in self.weights]).argsort()
        kept = torch.ones(order.numel(), dtype=torch.bool)
        kept[order[:zeros]] = False
        for i, part in enumerate(kept.split([w.numel() for w in self.weights])):
            mask = part.view_as(self.weights[i])
            self.masks[i] = self.masks[i] & mask if never_returns else mask

    @torch.no_grad()
    def regenerate(self, part, gradients):
        """Drop the weakest active weights of each layer, grow as many by the gradient; then the masks are applied."""
        for i, weight in enumerate(self.weights):
            count = math.ceil(part * int(self.masks[i].sum()))
            magnitude = torch.where(self.masks[i], weight.abs(), math.inf).flatten()
            dropped = self.masks[i].flatten().clone()
            dropped[magnitude.argsort()[:count]] = False
            growth = torch.where(dropped, -1.0, gradients[i].abs().flatten())
            grown = dropped.clone()
            grown[growth.argsort(descending=True)[:count]] = True
            before, self.masks[i] = self.masks[i], grown.view_as(weight)
            new = self.masks[i] & ~before
            weight[new] = 0.0
            self.momenta[weight][new] = 0.0
        self.apply_masks()


def assert_equal(book, model, optimizer):
    for (name, p), q in zip(model.named_parameters(), book.model.parameters(), strict=True):
        assert torch.equal(p, q), name
        assert torch.equal(optimizer.state[p]["momentum_buffer"], book.momenta[q]), f"momentum of {name}"


def test_granet_is_its_authors_loop_prune_apply_regenerate():
    model, book = make_model(), Textbook()
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY)
    method = st3.methods.GraNet(every=EVERY)
    sparsifier = st3.sparsify(model, optimizer, sparsity=SPARSITY, total_steps=STEPS, method=method)
    total = sum(w.numel() for w in book.weights)
    revived = 0
    for step in range(1, STEPS + 1):
        backward(model, step)
        optimizer.step()
        backward(book.model, step)
        gradients = [w.grad.clone() for w in book.weights]
        book.step()
        book.apply_masks()
        every = max(1, min(EVERY, STEPS // 20))
        if step % every == 0 and zeros_asked(total, step) and step < STEPS:
            before = [mask.clone() for mask in book.masks]
            book.prune(zeros_asked(total, step))
            book.apply_masks()  # what is grown again starts at 0
            pruned = [b & ~m for b, m in zip(before, book.masks, strict=True)]
            book.regenerate(0.005 + 0.495 / 2 * (1 + math.cos(math.pi * step / STEPS)), gradients)
            revived += sum(int((p & m).sum()) for p, m in zip(pruned, book.masks, strict=True))
        assert_equal(book, model, optimizer)
    assert revived > 0, "no weight was pruned and regrown in one change: the test shows nothing"
    sparsifier.finalize()


@pytest.mark.parametrize("returns", [False, True])
def test_gmp_prunes_for_good_unless_momentum_may_bring_weights_back(returns):
    model, book = make_model(), Textbook(lr=0.5)  # steps large enough to push a weight back
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=MOMENTUM, weight_decay=DECAY)
    method = st3.methods.GMP(returns=returns)
    st3.sparsify(model, optimizer, sparsity=SPARSITY, total_steps=STEPS, method=method)
    total = sum(w.numel() for w in book.weights)
    revived = 0
    for step in range(1, STEPS + 1):
        backward(model, step)
        optimizer.step()
        backward(book.model, step)
        book.step()
        before = [mask.clone() for mask in book.masks]
        if zeros := zeros_asked(total, step, start=5 / 160):
            book.prune(zeros, never_returns=not returns)
        book.apply_masks(clears_momentum=not returns)
        revived += sum(int((m & ~b).sum()) for b, m in zip(before, book.masks, strict=True))
        assert_equal(book, model, optimizer)
    assert (revived > 0) == returns


def test_granet_can_begin_by_erk_and_prune_by_one_threshold():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), LR)
    method = st3.methods.GraNet(initial=0.5, initial_allocation="erk")
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=100, method=method)
    densities = [float((layer.weight != 0).double().mean()) for layer in sparsifier.layers]
    by_hand = [(12 + 24) / (12 * 24), (24 + 6) / (24 * 6)]  # ERK: in proportion to sum(shape) / prod(shape)
    assert densities[0] / densities[1] == pytest.approx(by_hand[0] / by_hand[1], rel=0.02)
    assert sparsifier.report().zeros == math.floor((12 * 24 + 24 * 6 - 1) * 0.5) + 1
    assert sparsifier.allocation == st3.allocations.Global()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"initial": 0.5, "initial_allocation": "erq"}, "unknown allocation 'erq'; did you mean 'erk'"),
        ({"initial_allocation": "erk"}, "initial_allocation has no effect with initial=0"),
    ],
)
def test_an_initial_allocation_that_means_nothing_is_refused(settings, message):
    with pytest.raises((ValueError, LookupError), match=message):
        st3.methods.GraNet(**settings)


def test_tied_weights_of_half_precision_are_pruned_one_by_one():
    """Three magnitudes for all weights: whatever is tied with the last one to go must stay."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 8, bias=False)).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.01 * torch.randint(1, 4, parameter.shape, generator=generator))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=8, method="granet", min_weights=20)
    for step in range(8):
        model(torch.randn(4, 16, generator=generator).to(torch.bfloat16)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        masks = [optimizer.state[parameter]["st3_active"] for parameter in model.parameters()]
        asked = sparsifier.asked(step + 1)
        assert sum(int((~mask).sum()) for mask in masks) == (int(383 * asked) + 1 if asked else 0)
        assert min(int(mask.sum()) for mask in masks) >= 20
