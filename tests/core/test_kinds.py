"""Weights that are linear maps by nature: known by name, or inside a weight_norm."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from transformers import MixtralConfig, MixtralForCausalLM

import st3
from st3.allocations.erk import erk_densities
from st3.core.layers.filters import Filters
from st3.core.layers.find import find_layers
from st3.core.layers.layer import Layer


def covered(model, **choice):
    return [layer.name for layer in find_layers(model, **choice)]


def reasons(model, **choice):
    return {skipped.name: skipped.reason for skipped in find_layers(model, **choice).skipped}


# ---------------------------------------------------------------- PyTorch Geometric's Linear


def pyg_linear(inputs, outputs):
    """A stand-in for torch_geometric.nn.Linear: its class name, attributes, weight and forward pass."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.in_channels, self.out_channels = inputs, outputs
            self.weight = nn.Parameter(torch.randn(outputs, inputs))

        def forward(self, x):
            return nn.functional.linear(x, self.weight)

    return Linear()


def test_the_linear_layer_of_pytorch_geometric_is_covered():
    (layer,) = find_layers(nn.ModuleDict({"conv": pyg_linear(4, 6)}))
    assert (layer.name, layer.filters, layer.inputs) == ("conv.weight", Filters(), 1)


def test_a_layer_that_is_only_called_linear_is_not_taken_for_it():
    module = pyg_linear(4, 6)
    module.weight = nn.Parameter(torch.randn(4, 6))  # stored the other way round
    assert reasons(nn.ModuleList([module, nn.Linear(2, 2)])) == {
        "0.weight": "Linear is not covered by default (include its name or type)"
    }


# ---------------------------------------------------------------- experts of a mixture in one weight


class GatedExperts(nn.Module):
    """Three experts: two inputs, a gated hidden layer of five, two outputs."""

    def __init__(self, *, inputs_first=False):
        super().__init__()
        up, down = torch.randn(3, 10, 2), torch.randn(3, 2, 5)
        self.gate_up_proj = nn.Parameter(up.mT.contiguous() if inputs_first else up)
        self.down_proj = nn.Parameter(down.mT.contiguous() if inputs_first else down)
        self.down_proj_bias = nn.Parameter(torch.zeros(3, 2))


@pytest.mark.parametrize(("inputs_first", "axis"), [(False, 1), (True, 2)])
def test_experts_are_covered_and_their_shapes_tell_which_axis_holds_the_outputs(inputs_first, axis):
    layers = find_layers(GatedExperts(inputs_first=inputs_first))
    assert [layer.name for layer in layers] == ["gate_up_proj", "down_proj"]
    assert {layer.filters for layer in layers} == {Filters(axis=axis, experts=True)}
    assert {layer.inputs for layer in layers} == {3 - axis}
    assert [(layer.filters.count(layer.shape), layer.filter_size) for layer in layers] == [(30, 2), (6, 5)]
    assert {s.name: s.reason for s in layers.skipped} == {"down_proj_bias": "a bias"}


def test_a_mark_on_the_module_tells_where_shapes_do_not():
    class PlainExperts(nn.Module):
        def __init__(self):
            super().__init__()
            self.up_proj = nn.Parameter(torch.randn(3, 5, 2))
            self.down_proj = nn.Parameter(torch.randn(3, 2, 5))

    model = nn.ModuleDict({"experts": PlainExperts(), "fc": nn.Linear(2, 2)})
    why = (
        "PlainExperts does not say which axis holds the outputs (include it if it is expert x output x input)"
    )
    assert reasons(model) == {"experts.up_proj": why, "experts.down_proj": why}
    included = find_layers(model, include="experts")
    assert {layer.filters for layer in included} == {Filters(axis=1, experts=True)}
    model["experts"].is_transposed = True  # as transformers marks its experts
    assert {layer.filters for layer in find_layers(model, include="experts.*")} == {
        Filters(axis=2, experts=True)
    }
    assert covered(model) == ["experts.up_proj", "experts.down_proj", "fc.weight"]


@pytest.fixture(scope="module")
def mixtral():
    config = MixtralConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
    )
    return MixtralForCausalLM(config)


def test_the_experts_of_mixtral_are_covered(mixtral):
    layers = {layer.kind: layer for layer in find_layers(mixtral)}
    assert layers["MixtralExperts"].shape == (4, 8, 12)  # the last of them: down_proj
    assert layers["MixtralExperts"].filters == Filters(axis=1, experts=True)
    assert set(reasons(mixtral)) == {"model.embed_tokens.weight", "model.layers.0.mlp.gate.weight"}


def test_a_filter_of_experts_holds_the_weights_of_one_output_of_one_expert(mixtral):
    """Zero one filter: of all outputs of all experts only that one changes."""
    experts = copy.deepcopy(mixtral.model.layers[0].mlp.experts)
    layer = find_layers(experts)["down_proj"]
    x, one = torch.randn(1, 8), torch.ones(1, 1)
    before = torch.cat([experts(x, torch.tensor([[expert]]), one) for expert in range(4)])
    label = torch.arange(32).reshape(layer.filters.sums(layer.weight).shape)
    of_filter = layer.filters.spread(label, layer.shape).expand(layer.shape)
    with torch.no_grad():
        layer.weight[of_filter == 2 * 8 + 5] = 0.0  # output 5 of expert 2
    after = torch.cat([experts(x, torch.tensor([[expert]]), one) for expert in range(4)])
    changed = (before != after).nonzero().tolist()
    assert changed == [[2, 5]]
    assert after[2, 5] == 0


def test_means_over_the_filters_of_experts_by_hand():
    weight = torch.arange(12.0).reshape(2, 2, 3)
    layer = Layer("experts", nn.Parameter(weight), "Experts", Filters(axis=1, experts=True))
    assert (layer.filters.count(layer.shape), layer.filter_size, layer.expert_shape) == (4, 3, (2, 3))
    assert layer.filter_means(weight).tolist() == [[[1.0], [4.0]], [[7.0], [10.0]]]
    turned = Layer("experts", nn.Parameter(weight), "Experts", Filters(axis=2, experts=True))
    assert (turned.filters.count(turned.shape), turned.filter_size) == (6, 2)
    assert turned.filter_means(weight).tolist() == [[[1.5, 2.5, 3.5]], [[7.5, 8.5, 9.5]]]
    assert torch.equal(
        layer.filter_means(weight[1:]), layer.filter_means(weight)[1:]
    )  # some experts at a time


@pytest.mark.parametrize("size", [(4, 6, 5), (3, 600, 200)], ids=["small", "large: written in pieces"])
@pytest.mark.parametrize("method", ["st3", "gmp"])
def test_experts_in_one_weight_train_as_separate_linear_layers_do(size, method):
    """Threshold, rescale and update of every output, bit for bit."""
    torch.manual_seed(0)
    weights = torch.randn(size)

    class Experts(nn.Module):
        is_transposed = False

        def __init__(self):
            super().__init__()
            self.up_proj = nn.Parameter(weights.clone())

    together = Experts()
    apart = nn.ModuleList(nn.Linear(size[2], size[1], bias=False) for _ in range(size[0]))
    with torch.no_grad():
        for i, linear in enumerate(apart):
            linear.weight.copy_(weights[i])
    slope = torch.randn(size)
    for model in (together, apart):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        st3.sparsify(model, optimizer, sparsity=0.8, total_steps=4, method=method)
        for _ in range(4):
            found = model.up_proj if model is together else torch.stack([linear.weight for linear in model])
            (found * slope).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert int((together.up_proj == 0).sum()) == round(0.8 * weights.numel())
    assert torch.equal(together.up_proj, torch.stack([linear.weight for linear in apart]))


def test_empty_filters_of_experts_are_counted_one_by_one():
    experts = GatedExperts()
    with torch.no_grad():
        experts.down_proj[0, 1] = 0.0
        experts.down_proj[2] = 0.0
    rows = {row.name: row for row in st3.report(experts).rows}
    assert (rows["down_proj"].empty_filters, rows["down_proj"].filters, rows["down_proj"].zeros) == (3, 6, 15)


def test_erk_treats_experts_like_as_many_separate_layers():
    torch.manual_seed(0)
    weights = torch.randn(4, 6, 5)
    together = Layer("experts", nn.Parameter(weights), "Experts", Filters(axis=1, experts=True))
    apart = [Layer(str(i), nn.Parameter(weights[i].clone()), "Linear", Filters()) for i in range(4)]
    other = Layer("other", nn.Parameter(torch.randn(30, 40)), "Linear", Filters())
    _, one = erk_densities([together.expert_shape, other.shape], 0.8, copies=[4, 1])
    _, many = erk_densities([layer.shape for layer in (*apart, other)], 0.8)
    assert one == pytest.approx([many[0], many[-1]])
    assert st3.allocations.Sigma().factor_of(together) == st3.allocations.Sigma().factor_of(apart[0])


# ---------------------------------------------------------------- weight_norm: g * v / |v|

WEIGHT_NORMS = {
    "parametrization": (parametrizations.weight_norm, "parametrizations.weight.original1"),
    "hook": (nn.utils.weight_norm, "weight_v"),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(("norm", "name"), WEIGHT_NORMS.values(), ids=WEIGHT_NORMS)
def test_the_direction_of_weight_norm_is_the_weight_and_its_magnitude_never(norm, name):
    model = nn.Sequential(norm(nn.Conv2d(3, 4, 3)), norm(nn.ConvTranspose2d(4, 6, 2, groups=2)))
    layers = find_layers(model)
    assert [(layer.name, layer.shape) for layer in layers] == [
        (f"0.{name}", (4, 3, 3, 3)),
        (f"1.{name}", (4, 3, 2, 2)),
    ]
    assert [layer.filters for layer in layers] == [Filters(), Filters(axis=1, groups=2)]
    assert {s.reason for s in layers.skipped} == {"the magnitudes of weight_norm, one per filter"}
    assert covered(model, include=nn.Conv2d) == covered(model, include="0.weight") == [f"0.{name}"]
    assert covered(model, exclude="0") == covered(model, exclude=nn.Conv2d) == [f"1.{name}"]


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("norm", [norm for norm, _ in WEIGHT_NORMS.values()], ids=WEIGHT_NORMS)
def test_zeros_in_the_direction_are_zeros_of_the_weight_after_training(norm):
    model = norm(nn.Linear(20, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with pytest.warns(
        st3.errors.LayerCollapseWarning, match="a filter that loses its last weight becomes NaN"
    ):
        sparsifier = st3.sparsify(model, optimizer, sparsity=0.5, total_steps=4)
    for _ in range(4):
        model(torch.ones(1, 20)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    sparsifier.finalize()
    model(torch.ones(1, 20))  # the older form computes the weight in the forward pass
    assert int((model.weight == 0).sum()) == 40


def test_the_weights_of_other_parametrizations_are_left_out_by_default():
    model = nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 2))
    name = "0.parametrizations.weight.original"
    assert reasons(model) == {name: "ParametrizedLinear is not covered by default (include its name or type)"}
    assert covered(model, include=name) == [name]


def test_a_linear_layer_that_stands_before_the_embedding_it_is_tied_to_is_left_out():
    model = nn.ModuleDict(
        {"head": nn.Linear(8, 20, bias=False), "embed": nn.Embedding(20, 8), "fc": nn.Linear(8, 8)}
    )
    model["embed"].weight = model["head"].weight
    found = st3.layers(model)
    assert [layer.name for layer in found] == ["fc.weight"]
    assert [(s.name, s.reason) for s in found.skipped] == [("head.weight", "tied to an embedding")]
