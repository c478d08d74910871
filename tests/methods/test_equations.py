"""Every method's pair of equations against autograd through the textbook form.

The textbook form keeps the raw weights as the parameters and puts the sparse weight into the forward pass as a
function of them, with a straight-through estimator where the method has one. Autograd then derives the backward pass.
Thresholds come from numpy's quantile. Relu, not clamp: at the threshold itself clamp passes the gradient.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import st3

STEPS = 60
SPARSITY = 0.98  # above 0.95, so that Feather's theta is at work


def _scale(raw: Tensor, threshold: float, *, exact: bool) -> Tensor:
    magnitude = raw.detach().abs().flatten(1)
    total = magnitude.mean(1)
    kept = (magnitude * (magnitude > threshold)).mean(1)
    if exact:
        scale = torch.where(kept > 0, total / torch.where(kept > 0, kept, 1.0), 1.0)
    else:
        scale = 1.01 / ((kept + 1e-6) / (total + 1e-6) + 0.01)
    return scale.reshape(-1, *[1] * (raw.dim() - 1))


def _textbook_st3(method: st3.methods.ST3) -> Callable[[Tensor, float], Tensor]:
    def sparse(raw: Tensor, threshold: float) -> Tensor:
        if method.soft:
            weight = torch.sign(raw) * torch.relu(raw.abs() - threshold)
        else:
            weight = raw * (raw.abs() > threshold)
        if method.rescale:
            weight = weight * _scale(raw, threshold, exact=method.exact_rescale)
        return raw + (weight - raw).detach() if method.straight_through else weight

    return sparse


def _textbook_feather(method: st3.methods.Feather) -> Callable[[Tensor, float], Tensor]:
    def sparse(raw: Tensor, threshold: float) -> Tensor:
        active = raw.abs() > threshold
        base = torch.where(active, raw.abs() ** method.power - threshold**method.power, 1.0)
        weight = torch.where(active, torch.sign(raw) * base ** (1 / method.power), 0.0)
        factor = torch.where(active, 1.0, method.damping(SPARSITY)).to(raw.dtype)
        return raw * factor + (weight - raw * factor).detach()

    return sparse


METHODS = [
    st3.methods.ST3(soft=soft, rescale=rescale, straight_through=straight_through)
    for soft in (True, False)
    for rescale in (True, False)
    for straight_through in (True, False)
] + [
    st3.methods.ST3(exact_rescale=True),
    st3.methods.Feather(),
    st3.methods.Feather(power=2.0, theta=0.25),
    st3.methods.Feather(theta=1.0),
    st3.methods.Soft(),
    st3.methods.DNW(),
]

# Methods that are one of the ablations under the name of a paper.
SAME = {
    st3.methods.Soft: st3.methods.ST3(rescale=False, straight_through=False),
    st3.methods.DNW: st3.methods.ST3(soft=False, rescale=False),
}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.05),
}


def _network() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 20),
        nn.Tanh(),
        nn.Linear(20, 3),
    )
    return net.double()


def _batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 2, 6, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (8,), generator=generator)


def _loss(model: nn.Module, weights: dict[str, Tensor] | None, step: int) -> Tensor:
    x, y = _batch(step)
    out = model(x) if weights is None else functional_call(model, weights, (x,))
    loss: Tensor = nn.functional.cross_entropy(out, y)
    return loss


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_run_agrees_with_autograd_through_the_textbook_form(method, optimizer_name):
    model, reference = _network(), _network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    reference_optimizer = OPTIMIZERS[optimizer_name](reference.parameters())
    choice = {"ramp": "cubic", "allocation": "global"}
    sparsifier = st3.sparsify(model, optimizer, sparsity=SPARSITY, total_steps=STEPS, method=method, **choice)
    names = [layer.name for layer in sparsifier.layers]
    method = SAME.get(type(method), method)
    textbook = _textbook_st3(method) if isinstance(method, st3.methods.ST3) else _textbook_feather(method)

    threshold = None
    for step in range(STEPS):
        _loss(model, None, step).backward()
        optimizer.step()
        optimizer.zero_grad()

        raw = dict(reference.named_parameters())
        sparse = {n: p if threshold is None else textbook(p, threshold) for n, p in raw.items() if n in names}
        _loss(reference, raw | sparse, step).backward()
        reference_optimizer.step()
        reference_optimizer.zero_grad()
        asked = sparsifier.asked(step + 1)
        scores = np.concatenate([raw[n].detach().abs().numpy().ravel() for n in names])
        threshold = float(np.quantile(scores, asked)) if asked else None

    raw = dict(reference.named_parameters())
    for layer in sparsifier.layers:
        found = optimizer.state[layer.parameter]["st3_raw"]
        assert torch.allclose(found, raw[layer.name], rtol=0, atol=1e-9)
        assert torch.allclose(layer.parameter, textbook(raw[layer.name], threshold), rtol=0, atol=1e-9)
    for name, parameter in model.named_parameters():
        if name not in names:
            assert torch.allclose(parameter, raw[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_of_gmp_agrees_with_its_textbook_form(every):
    """W * mask in the forward pass of autograd; SGD with momentum written out; masks that only shrink."""
    model, reference = _network(), _network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    settings = {"sparsity": 0.9, "total_steps": STEPS, "method": st3.methods.GMP(every=every)}
    settings["ramp"] = st3.ramps.Cubic(end=31 / STEPS)
    sparsifier = st3.sparsify(model, optimizer, **settings)
    names = [layer.name for layer in sparsifier.layers]
    weights = dict(reference.named_parameters())
    masks = {name: torch.ones_like(weights[name], dtype=torch.bool) for name in names}
    velocity = {name: torch.zeros_like(p) for name, p in weights.items()}
    for step in range(STEPS):
        _loss(model, None, step).backward()
        optimizer.step()
        optimizer.zero_grad()

        _loss(reference, weights | {n: weights[n] * masks[n] for n in names}, step).backward()
        asked = sparsifier.asked(step + 1)
        with torch.no_grad():
            for name, weight in weights.items():
                velocity[name] = 0.9 * velocity[name] + weight.grad + 1e-3 * weight
                weight -= 0.05 * velocity[name]
                weight.grad = None
            if asked and ((step + 1) % every == 0 or step + 1 == 31):
                threshold = np.quantile(
                    np.concatenate([weights[n].abs().numpy().ravel() for n in names]), asked
                )
                for name in names:
                    masks[name] &= weights[name].abs() > threshold
                    weights[name] *= masks[name]
                    velocity[name] *= masks[name]
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, weights[name], rtol=0, atol=1e-9)
    assert sum(int((weights[name] == 0).sum()) for name in names) == int(2087 * 0.9) + 1


def _groups_by_hand(method: st3.methods.SRSTE | st3.methods.SSTE, raw: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mask and the thresholds of m:n groups: sorted in (output, height, width, input) order."""
    places = raw.detach().movedim(1, -1)
    groups = places.abs().reshape(-1, method.m).numpy()
    order = np.argsort(groups, axis=1)
    mask = np.ones_like(groups, dtype=bool)
    np.put_along_axis(mask, order[:, : method.m - method.n], False, axis=1)
    threshold = np.sort(groups, axis=1)[:, method.m - method.n - 1].repeat(method.m)
    return (torch.from_numpy(x).reshape(places.shape).movedim(-1, 1) for x in (mask, threshold))  # type: ignore[return-value]


def _textbook_groups(
    method: st3.methods.SRSTE | st3.methods.SSTE, raw: Tensor, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Return the sparse weight and what the loss is charged for it."""
    mask, threshold = _groups_by_hand(method, raw)
    if isinstance(method, st3.methods.SRSTE):
        return raw + (raw * mask - raw).detach(), method.decay / 2 * (raw * ~mask).square().sum()
    weight = torch.sign(raw) * torch.relu(raw.abs() - threshold)
    if scale is None:
        return weight, raw.new_zeros(())
    return raw + (scale * weight - raw).detach(), raw.new_zeros(())


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize(
    "method",
    [
        st3.methods.SRSTE(n=1, m=2, decay=0.01),
        st3.methods.SRSTE(),
        st3.methods.SSTE(n=1, m=2),
        st3.methods.SSTE(),
    ],
)
def test_a_run_of_n_in_m_agrees_with_autograd_through_the_textbook_form(method, optimizer_name):
    """The decay of zeroed weights is the gradient of decay/2 times their squares, added to the loss."""
    model, reference = _network(), _network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    reference_optimizer = OPTIMIZERS[optimizer_name](reference.parameters())
    sparsifier = st3.sparsify(model, optimizer, total_steps=STEPS, method=method)
    names = [layer.name for layer in sparsifier.layers]
    assert ("0.weight" in names) is (method.m == 2)  # two input channels
    raw = dict(reference.named_parameters())
    scales = {}
    for name in names:
        dense = raw[name].detach()
        first = _textbook_groups(method, dense, None)[0]
        scales[name] = float((dense * first).sum() / (first * first).sum())
    for step in range(STEPS):
        _loss(model, None, step).backward()
        optimizer.step()
        optimizer.zero_grad()

        textbook = {name: _textbook_groups(method, raw[name], scales[name]) for name in names}
        loss = _loss(reference, raw | {name: weight for name, (weight, _) in textbook.items()}, step)
        (loss + sum(charge for _, charge in textbook.values())).backward()
        reference_optimizer.step()
        reference_optimizer.zero_grad()
    for name, parameter in model.named_parameters():
        found = optimizer.state[parameter]["st3_raw"] if name in names else parameter
        assert torch.allclose(found, raw[name], rtol=0, atol=1e-9)
        if name in names:
            expected = _textbook_groups(method, raw[name], scales[name])[0]
            assert torch.allclose(parameter, expected, rtol=0, atol=1e-9)
            assert float((parameter == 0).double().mean()) == method.own_sparsity


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
def test_a_run_of_acdc_agrees_with_its_textbook_form(optimizer_name):
    """W * mask in the forward pass of autograd; with every dense phase a new optimizer begins."""
    model, reference = _network(), _network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=100, method="acdc")
    names = [layer.name for layer in sparsifier.layers]
    weights = dict(reference.named_parameters())
    masks = {name: torch.ones_like(weights[name]) for name in names}
    reference_optimizer = OPTIMIZERS[optimizer_name](reference.parameters())
    pruned = {10, 20, 30, 40, 50, 60, 70, 85}  # of the 100 epochs of the authors, here of one step each
    restored = {15, 25, 35, 45, 55, 65, 75}
    for step in range(1, 101):
        _loss(model, None, step).backward()
        optimizer.step()
        optimizer.zero_grad()

        _loss(reference, weights | {n: weights[n] * masks[n] for n in names}, step).backward()
        reference_optimizer.step()
        reference_optimizer.zero_grad()
        if step in pruned:
            together = np.concatenate([weights[n].detach().abs().numpy().ravel() for n in names])
            threshold = np.quantile(together, 0.9)
            masks = {name: (weights[name].detach().abs() > threshold).double() for name in names}
        with torch.no_grad():
            for name in names:
                weights[name] *= masks[name]
        if step in restored:
            masks = {name: torch.ones_like(weights[name]) for name in names}
            reference_optimizer = OPTIMIZERS[optimizer_name](reference.parameters())
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, weights[name], rtol=0, atol=1e-9)
    assert sum(int((weights[name] == 0).sum()) for name in names) == int(2087 * 0.9) + 1


def test_the_comparison_can_fail():
    """A wrong backward (straight-through where the method has none) is far outside the tolerance."""
    finals = []
    for straight_through in (True, False):
        model = _network()
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        st3.sparsify(
            model,
            optimizer,
            sparsity=0.9,
            total_steps=50,
            method=st3.methods.ST3(straight_through=straight_through),
        )
        for step in range(50):
            _loss(model, None, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        finals.append(optimizer.state[model[0].weight]["st3_raw"].clone())
    assert (finals[0] - finals[1]).abs().max() > 1e-3
