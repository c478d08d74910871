"""TopK: against the paper's loop written out by hand, what may return, what every neuron keeps, and tied weights."""

import copy
import math

import pytest
import torch
from torch import nn

import st3

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # small layers lose filters

STEPS, SPARSITY = 60, 0.9
LR, BETAS, EPSILON, DECAY = 0.02, (0.9, 0.95), 0.1, 0.1


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(12, 40), nn.GELU(), nn.Linear(40, 12), nn.GELU(), nn.Linear(12, 6)
    ).double()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPSILON, weight_decay=DECAY)


def backward(model, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 12, generator=generator).double()
    nn.functional.cross_entropy(model(x), x[:, :6].argmax(1)).backward()


def learn(model, optimizer, steps):
    for step in steps:
        backward(model, step)
        optimizer.step()
        optimizer.zero_grad()


def start(method="topk", model=None, **choice):
    model = network() if model is None else model
    optimizer = adamw(model)
    settings = {"sparsity": SPARSITY, "total_steps": STEPS, "method": method, **choice}
    return model, optimizer, st3.sparsify(model, optimizer, **settings)


class Textbook:
    """AdamW written out; after its step, all but the largest weights of every matrix are zeroed."""

    def __init__(self):
        self.model = network()
        self.moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in self.model.parameters()}
        self.steps = 0

    @torch.no_grad()
    def step(self, kept):
        self.steps += 1
        for name, p in self.model.named_parameters():
            first, second = self.moments[p]
            first.mul_(BETAS[0]).add_(p.grad, alpha=1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(p.grad, p.grad, value=1 - BETAS[1])
            mean, square = first / (1 - BETAS[0] ** self.steps), second / (1 - BETAS[1] ** self.steps)
            p.mul_(1 - LR * DECAY).sub_(LR * mean / (square.sqrt() + EPSILON))
            if name in kept:
                order = p.abs().flatten().argsort(descending=True)
                p.flatten()[order[kept[name] :]] = 0.0
            p.grad = None


def test_a_run_agrees_with_the_papers_loop():
    model, optimizer, sparsifier = start()
    textbook = Textbook()
    weights = {layer.name: layer.numel for layer in sparsifier.layers}
    total = sum(weights.values())
    for step in range(STEPS):
        backward(model, step)
        optimizer.step()
        optimizer.zero_grad()
        # The ramp, by hand: from 1 % of 60 steps (the first) to 50 %.
        density = 1 - SPARSITY * min(1.0, max(0.0, step / 29))
        kept = {x.name: int((x.parameter != 0).sum()) for x in sparsifier.layers}
        zeros = math.floor((total - 1) * (1 - density)) + 1 if density < 1 else 0
        assert sum(kept.values()) == total - zeros
        assert all(abs(kept[name] - density * weights[name]) < 1.01 for name in kept)

        backward(textbook.model, step)
        textbook.step(kept)
        for found, expected in zip(model.parameters(), textbook.model.parameters(), strict=True):
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)
            assert torch.equal(found == 0, expected == 0)
    assert density == pytest.approx(1 - SPARSITY)


def test_zeroed_weights_get_gradients_and_some_return():
    model = network()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.03
    )  # without the large epsilon, its steps are larger
    choice = {"ramp": "constant", "allocation": "global"}
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.5, total_steps=STEPS, method="topk", **choice)
    returned = 0
    for step in range(20):
        before = [layer.parameter == 0 for layer in sparsifier.layers]
        backward(model, step)
        assert all(
            bool(x.parameter.grad[zero].any()) for x, zero in zip(sparsifier.layers, before, strict=True)
        )
        optimizer.step()
        optimizer.zero_grad()
        pairs = zip(sparsifier.layers, before, strict=True)
        returned += sum(int((zero & (x.parameter != 0)).sum()) for x, zero in pairs)
    assert returned > 0


def test_it_keeps_no_second_copy_of_the_weights():
    model, optimizer, sparsifier = start()
    learn(model, optimizer, range(3))
    for layer in sparsifier.layers:
        state = optimizer.state[layer.parameter]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq", "st3_active"}
        assert state["st3_active"].dtype == torch.bool


def test_every_neuron_keeps_its_largest_weights_and_the_count_stays():
    choice = {"ramp": "constant", "sparsity": 0.8, "exclude": st3.LAST}
    plain, spared = start("topk", **choice), start(st3.methods.TopK(per_neuron=2), **choice)
    died = False
    for step in range(10):
        for model, optimizer, _ in (plain, spared):
            learn(model, optimizer, [step])
        for a, b in zip(plain[2].layers, spared[2].layers, strict=True):
            assert int((a.parameter != 0).sum()) == int((b.parameter != 0).sum())
        up, down = (layer.parameter for layer in spared[2].layers)
        # The hidden neurons are outputs of the first matrix and inputs of the second.
        assert min((up != 0).sum(1).min(), (down != 0).sum(0).min()) >= 2
        died = died or bool(((plain[2].layers[0].parameter != 0).sum(1) < 2).any())
    assert died


def by_hand(weight, axis, least, kept):
    """Return the mask: first the largest of every neuron, then the largest of the rest."""
    mask = torch.zeros_like(weight, dtype=torch.bool)
    for neuron in range(weight.shape[axis]):
        row = weight.select(axis, neuron).abs()
        mask.select(axis, neuron)[row.argsort(descending=True)[:least]] = True
    rest = weight.abs().masked_fill(mask, -1).flatten().argsort(descending=True)
    mask.view(-1)[rest[: kept - int(mask.sum())]] = True
    return mask


def test_the_masks_with_spared_neurons_are_those_by_hand():
    model = network()
    expected = [model[i].weight.detach().clone() for i in (0, 2, 4)]
    _, _, sparsifier = start(st3.methods.TopK(per_neuron=3), model, ramp="constant", sparsity=0.5)
    for layer, weight, axis in zip(sparsifier.layers, expected, (0, 1, 1), strict=True):
        mask = by_hand(weight, axis, 3, int((layer.parameter != 0).sum()))
        assert torch.equal(layer.parameter, weight * mask)


def test_more_weights_per_neuron_than_the_target_leaves_are_refused():
    model = network()
    before = model[0].weight.detach().clone()
    complaint = (
        r"^per_neuron=4 asks for 160 weights in layer '0\.weight' with its 40 neurons, but a sparsity of 0\.9 leaves "
        r"it 48: lower per_neuron or the sparsity, or exclude the layer$"
    )
    with pytest.raises(ValueError, match=complaint):
        start(st3.methods.TopK(per_neuron=4), model)
    assert torch.equal(model[0].weight, before)
    for per_neuron in (-1, 1.5):
        with pytest.raises(
            ValueError, match=f"per_neuron must be a whole number of at least 0, got {per_neuron}"
        ):
            st3.methods.TopK(per_neuron=per_neuron)


@pytest.mark.parametrize("cut", [10, 45])
def test_it_resumes_bit_for_bit_with_spared_neurons(cut):
    method = st3.methods.TopK(per_neuron=2)
    whole, optimizer, _ = start(method, sparsity=0.6)
    learn(whole, optimizer, range(cut))
    saved = copy.deepcopy({"model": whole.state_dict(), "optimizer": optimizer.state_dict()})
    model = network()
    model.load_state_dict(saved["model"])
    again = adamw(model)
    again.load_state_dict(saved["optimizer"])
    st3.sparsify(model, again, sparsity=0.6, total_steps=STEPS, method=method)
    learn(whole, optimizer, range(cut, STEPS))
    learn(model, again, range(cut, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), model.parameters(), strict=True))


class Tied(nn.Module):
    """A language model in small: the head's weight is that of the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.down(self.up(self.embedding(tokens)).relu()))


@pytest.mark.parametrize("method", ["topk", "pdp", "st3"])
def test_a_head_tied_to_the_embedding_stays_dense_unless_named_and_counts_once(method):
    for include, names, weights in (
        (None, ["up.weight", "down.weight"], 2048),
        ([st3.USUAL, "head"], ["embedding.weight", "up.weight", "down.weight"], 2528),
    ):
        torch.manual_seed(0)
        model = Tied()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        settings = {"sparsity": 0.75, "total_steps": 20, "method": method, "include": include}
        sparsifier = st3.sparsify(model, optimizer, **settings)
        for step in range(20):
            tokens = torch.randint(30, (8, 5), generator=torch.Generator().manual_seed(step))
            nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        report = str(sparsifier.report())
        sparsifier.finalize()
        assert [layer.name for layer in sparsifier.layers] == names
        zeros = sum(int((layer.parameter == 0).sum()) for layer in sparsifier.layers)
        assert zeros == math.floor((weights - 1) * 0.75) + 1
        assert model.head.weight is model.embedding.weight
        assert bool((model.head.weight == 0).any()) is (include is not None)
        assert ("tied to an embedding" in report) is (include is None)
