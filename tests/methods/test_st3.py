"""ST-3 as the paper has it: worked numbers through the real sparsifier, straight-through, rescale, ablations."""

import copy

import pytest
import torch
from torch import nn, tensor

import st3
from st3.methods import ST3, WeightView

W = tensor([[0.5, -0.4, 0.1, 0.05], [0.3, -0.2, 0.02, 0.01]])
SCALES = (1.1647439, 1.0593702)
ACTIVE = tensor([[1, 1, 0, 0], [1, 1, 0, 0]]).bool()


def attach(method, *, weight=W, sparsity=0.5, lr=0.1, module=None, **optimizer_settings):
    """Return a layer that holds the sparse weight of `weight`, its optimizer and sparsifier."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False) if module is None else module
    with torch.no_grad():
        layer.weight.copy_(weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr, **optimizer_settings)
    sparsifier = st3.sparsify(
        layer, optimizer, sparsity=sparsity, total_steps=1000, ramp="constant", method=method
    )
    return layer, optimizer, sparsifier


def step(layer, optimizer, gradient):
    """Take one step with a loss whose gradient at the sparse weight is `gradient`; return what the weight got."""
    optimizer.zero_grad()
    (layer.weight * gradient).sum().backward()
    got = layer.weight.grad.clone()
    optimizer.step()
    return got


def raw(layer, optimizer):
    return optimizer.state[layer.weight]["st3_raw"]


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=0, atol=6e-8)


# ---------------------------------------------------------------- worked numbers


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        pytest.param(ST3(soft=False, rescale=False), [[0.5, -0.4, 0, 0], [0.3, -0.2, 0, 0]], id="A1 hard"),
        pytest.param(
            ST3(soft=False),
            [[0.5823720, -0.4658976, 0, 0], [0.3178111, -0.2118740, 0, 0]],
            id="A2 hard with rescale",
        ),
        pytest.param(ST3(rescale=False), [[0.35, -0.25, 0, 0], [0.15, -0.05, 0, 0]], id="A3 soft"),
        pytest.param(ST3(), [[0.4076604, -0.2911860, 0, 0], [0.1589055, -0.0529685, 0, 0]], id="A4 ST-3"),
        pytest.param(
            ST3(straight_through=False),
            [[0.4076604, -0.2911860, 0, 0], [0.1589055, -0.0529685, 0, 0]],
            id="A5 with rescale",
        ),
        pytest.param(
            ST3(rescale=False, straight_through=False), [[0.35, -0.25, 0, 0], [0.15, -0.05, 0, 0]], id="A5"
        ),
        pytest.param(
            ST3(exact_rescale=True),  # r = 0.9 / 1.05 and 0.5 / 0.53
            [
                [0.35 * 1.05 / 0.9, -0.25 * 1.05 / 0.9, 0, 0],
                [0.15 * 0.53 / 0.5, -0.05 * 0.53 / 0.5, 0, 0],
            ],
            id="the paper's 1/r",
        ),
    ],
)
def test_the_sparse_weight_of_every_switch_setting(method, expected):
    layer, _, sparsifier = attach(method)
    assert sparsifier.thresholds == {"weight": pytest.approx(0.15, abs=1e-8)}
    close(layer.weight.detach(), expected)
    assert int((layer.weight == 0).sum()) == 4


def test_a_filter_without_survivors_stays_zero():
    layer, _, sparsifier = attach(ST3(), sparsity=0.75)
    assert sparsifier.thresholds == {"weight": pytest.approx(0.325, abs=2e-8)}
    close(layer.weight.detach()[0], [0.175 * SCALES[0], -0.075 * SCALES[0], 0, 0])
    assert layer.weight[1].tolist() == [0.0] * 4
    assert int((layer.weight == 0).sum()) == 6


def test_zeros_carry_no_minus_sign():
    layer, _, _ = attach(ST3(), weight=-W)
    zeroed = layer.weight[layer.weight == 0]
    assert zeroed.numel() == 4
    assert not torch.signbit(zeroed).any()


def test_the_default_is_the_method_of_the_paper():
    assert ST3() == ST3(soft=True, rescale=True, straight_through=True, exact_rescale=False)


def test_an_exact_rescale_without_rescale_is_refused():
    with pytest.raises(ValueError) as error:
        ST3(rescale=False, exact_rescale=True)
    assert str(error.value) == "exact_rescale=True has no effect with rescale=False: drop one of the two"


# ---------------------------------------------------------------- straight-through


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("rescale", [True, False])
def test_straight_through_every_weight_gets_the_gradient_of_its_sparse_weight(soft, rescale):
    """The gradient of sum(q) is 1 for all eight weights, active or not, scaled or not; and it moves the raw weight."""
    layer, optimizer, _ = attach(ST3(soft=soft, rescale=rescale))
    assert torch.equal(step(layer, optimizer, torch.ones(2, 4)), torch.ones(2, 4))
    torch.testing.assert_close(raw(layer, optimizer), W - 0.1, rtol=0, atol=1e-8)


def test_straight_through_the_gradient_is_not_even_copied():
    assert ST3().is_straight_through(0.99)
    grad, sparse = torch.ones(2, 4), torch.where(ACTIVE, W, 0.0)
    view = WeightView(
        W, sparse, 0.15, 0.99, filter_means=lambda values: values, scale=torch.full((2, 1), 7.0)
    )
    assert ST3().raw_gradient(grad, view) is grad


def test_the_gradient_is_taken_at_the_sparse_weight():
    layer, optimizer, _ = attach(ST3())
    plain = nn.Linear(4, 2, bias=False)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for module in (layer, plain):
        module(x).square().sum().backward()
    assert torch.equal(layer.weight.grad, plain.weight.grad)
    assert not torch.equal(plain.weight.grad, torch.zeros(2, 4))
    optimizer.step()
    torch.testing.assert_close(raw(layer, optimizer), W - 0.1 * plain.weight.grad, rtol=0, atol=1e-7)


def test_a_zeroed_weight_with_a_persistent_gradient_crosses_the_threshold():
    """0.05 grows by 0.01 a step until, above 0.2, it is the fourth largest; the one that was then goes."""
    layer, optimizer, sparsifier = attach(ST3(rescale=False), lr=0.01)
    pull = torch.zeros(2, 4)
    pull[0, 3] = -1.0
    for _ in range(14):
        step(layer, optimizer, pull)
    assert raw(layer, optimizer)[0, 3] == pytest.approx(0.19, abs=1e-6)
    assert layer.weight[0, 3] == 0
    assert layer.weight[1, 1] != 0
    for _ in range(2):
        step(layer, optimizer, pull)
    assert sparsifier.thresholds["weight"] == pytest.approx(0.205, abs=1e-6)
    assert layer.weight[0, 3].item() == pytest.approx(0.21 - 0.205, abs=1e-6)
    assert layer.weight[1, 1] == 0
    assert int((layer.weight == 0).sum()) == 4


def test_a_weight_may_change_its_sign_through_zero():
    """0.3 goes down by 0.06 a step to -0.18; active while its magnitude is above 0.1, the fourth of the others."""
    layer, optimizer, _ = attach(ST3(), lr=0.06)
    push = torch.zeros(2, 4)
    push[1, 0] = 1.0
    signs = []
    for _ in range(8):
        step(layer, optimizer, push)
        signs.append(int(layer.weight[1, 0].sign()))
    assert signs == [1, 1, 1, 0, 0, 0, -1, -1]


def test_zeroed_weights_keep_their_raw_value():
    layer, optimizer, _ = attach(ST3())
    step(layer, optimizer, torch.zeros(2, 4))
    assert torch.equal(raw(layer, optimizer), W)


# ---------------------------------------------------------------- without straight-through (A5)


def test_without_straight_through_active_weights_get_the_scaled_gradient_and_zeroed_ones_none():
    layer, optimizer, _ = attach(ST3(straight_through=False))
    got = step(layer, optimizer, torch.ones(2, 4))
    expected = [[SCALES[0], SCALES[0], 0, 0], [SCALES[1], SCALES[1], 0, 0]]
    torch.testing.assert_close(got, tensor(expected), rtol=0, atol=2e-7)


def test_without_straight_through_and_rescale_the_gradient_is_masked():
    layer, optimizer, _ = attach(ST3(rescale=False, straight_through=False))
    assert torch.equal(step(layer, optimizer, torch.ones(2, 4)), ACTIVE.float())


def test_without_straight_through_a_zeroed_weight_moves_by_weight_decay_only():
    layer, optimizer, _ = attach(ST3(rescale=False, straight_through=False), weight_decay=0.5)
    step(layer, optimizer, torch.ones(2, 4))
    expected = W - 0.1 * (0.5 * W + ACTIVE.float())
    torch.testing.assert_close(raw(layer, optimizer), expected, rtol=0, atol=1e-7)
    assert bool((raw(layer, optimizer)[~ACTIVE] != 0).all())  # not sticky: kept, not cleared


def test_without_straight_through_a_weight_just_zeroed_moves_on_by_its_momentum():
    layer, optimizer, _ = attach(ST3(rescale=False, straight_through=False), momentum=0.5)
    push = torch.zeros(2, 4)
    push[1, 1] = -1.5  # from -0.2 to -0.05: zeroed by the first step
    step(layer, optimizer, push)
    assert layer.weight[1, 1] == 0
    assert raw(layer, optimizer)[1, 1].item() == pytest.approx(-0.05, abs=1e-7)
    assert step(layer, optimizer, push)[1, 1] == 0  # no gradient any more
    assert raw(layer, optimizer)[1, 1].item() == pytest.approx(-0.05 + 0.1 * 0.5 * 1.5, abs=1e-7)


# ---------------------------------------------------------------- rescale


def test_a_full_filter_is_not_scaled():
    weight = tensor([[0.5, -0.4, 0.6, 0.7], [0.03, -0.02, 0.01, 0.04]])
    layer, _, _ = attach(ST3(soft=False), weight=weight)
    torch.testing.assert_close(layer.weight[0].detach(), weight[0], rtol=2e-7, atol=0)
    assert layer.weight[1].tolist() == [0.0] * 4


def test_an_all_zero_filter_gives_no_nan():
    weight = torch.cat([W, 2 * W, 3 * W, torch.zeros(1, 4)])
    for method in (ST3(), ST3(exact_rescale=True)):
        layer, _, _ = attach(method, weight=weight)
        assert bool(torch.isfinite(layer.weight).all())
        assert layer.weight[6].tolist() == [0.0] * 4


def test_the_exact_rescale_keeps_the_mean_magnitude_of_each_filter_under_hard_thresholding():
    layer, _, _ = attach(ST3(soft=False, exact_rescale=True))
    torch.testing.assert_close(layer.weight.detach().abs().mean(1), W.abs().mean(1), rtol=2e-7, atol=0)


def test_the_bounded_rescale_stays_just_below_the_exact_one():
    bounded, exact = (attach(ST3(exact_rescale=exact))[0].weight.detach() for exact in (False, True))
    ratio = (bounded / exact)[ACTIVE]
    assert bool((ratio < 1).all())
    assert bool((ratio > 0.99).all())


def test_depthwise_filters_are_scaled_channel_by_channel():
    """The two rows of the example as two depthwise filters of 2 x 2."""
    module = nn.Conv2d(2, 2, 2, groups=2, bias=False)
    layer, _, _ = attach(ST3(), weight=W.reshape(2, 1, 2, 2), module=module)
    expected = [[0.4076604, -0.2911860, 0, 0], [0.1589055, -0.0529685, 0, 0]]
    close(layer.weight.detach().reshape(2, 4), expected)


def test_transposed_convolutions_are_scaled_by_output():
    """The same weights, stored (inputs, outputs, kernel)."""
    module = nn.ConvTranspose1d(4, 2, 1, bias=False)
    layer, _, _ = attach(ST3(), weight=W.T.reshape(4, 2, 1), module=module)
    expected = [[0.4076604, -0.2911860, 0, 0], [0.1589055, -0.0529685, 0, 0]]
    close(layer.weight.detach().reshape(4, 2).T, expected)


def test_large_layers_that_are_written_in_pieces_come_out_like_small_ones():
    torch.manual_seed(0)
    weight = torch.randn(700, 600)
    layer, _, sparsifier = attach(ST3(), weight=weight, sparsity=0.9)
    threshold = sparsifier.thresholds["weight"]
    kept = torch.where(weight.abs() > threshold, weight.abs(), 0).double().mean(1, keepdim=True)
    scale = 1.01 / ((kept + 1e-6) / (weight.abs().double().mean(1, keepdim=True) + 1e-6) + 0.01)
    expected = scale * weight.sign() * (weight.abs() - threshold).clamp(min=0)
    torch.testing.assert_close(layer.weight.detach().double(), expected, rtol=1e-5, atol=1e-7)
    assert int((layer.weight == 0).sum()) == 378_000  # floor(419,999 * 0.9) + 1


def conv_and_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, eps=1e-14)).double()
    return model, torch.randn(8, 3, 6, 6, dtype=torch.float64)


def test_before_a_batch_norm_the_rescale_changes_no_output_and_divides_the_gradient():
    model, x = conv_and_norm()
    target = torch.randn(8, 4, 4, 4, dtype=torch.float64)
    found = {}
    for rescale in (True, False):
        net = copy.deepcopy(model)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        st3.sparsify(
            net, optimizer, sparsity=0.6, total_steps=9, ramp="constant", method=ST3(rescale=rescale)
        )
        output = net(x)
        (output - target).square().sum().backward()
        found[rescale] = (output.detach(), net[0].weight.detach(), net[0].weight.grad)
    (out, weight, grad), (plain_out, plain_weight, plain_grad) = found[True], found[False]

    scale = torch.stack([(a / b)[b != 0].mean() for a, b in zip(weight, plain_weight, strict=True)])
    assert bool((scale > 1.1).all())
    torch.testing.assert_close(out, plain_out, rtol=0, atol=1e-9)
    torch.testing.assert_close(grad * scale.reshape(-1, 1, 1, 1), plain_grad, rtol=1e-9, atol=1e-9)


def test_without_a_batch_norm_the_rescale_does_change_the_output():
    scaled, plain = (attach(ST3(rescale=rescale))[0](torch.ones(1, 4)) for rescale in (True, False))
    ratio = (scaled / plain).squeeze().tolist()
    assert ratio == pytest.approx(SCALES, abs=2e-6)
