"""Which parameter a product belongs to, and how uncounted operations are named."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from st3.measure import count_macs


class Model(nn.Module):
    """A model made of named parameters and a function of them and the input."""

    def __init__(self, function: Any, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.ones(shape)))

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.function(self, *inputs, **named)


def test_a_functional_call_counts_like_the_layer() -> None:
    model = Model(lambda self, x: F.linear(x, self.w), w=(4, 3))
    assert count_macs(model, torch.ones(2, 3)).of(model.w) == 24


def test_a_weight_stored_as_inputs_times_outputs_is_found() -> None:
    """Hugging Face's Conv1D computes addmm(bias, x, w)."""
    model = Model(lambda self, x: torch.addmm(self.b, x.view(-1, 3), self.w), w=(3, 4), b=(4,))
    count = count_macs(model, torch.ones(2, 5, 3))
    assert count.of(model.w) == 3 * 4 * 10
    assert count.of(model.b) is None
    assert count.uncounted == ()


def test_multi_head_attention_is_counted_with_its_attention_products() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.ones(3, 5, 8)
    for need_weights in (True, False):
        count = count_macs(layer, {"query": x, "key": x, "value": x, "need_weights": need_weights})
        assert count.of(layer.in_proj_weight) == 3 * 5 * (24 * 8)
        assert count.of(layer.out_proj.weight) == 3 * 5 * (8 * 8)
        assert count.activation_macs == 3 * 5 * 5 * 8 * 2
        assert count.uncounted == ()


def test_cross_attention_uses_slices_of_one_packed_weight() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    memory = torch.ones(1, 7, 8)
    count = count_macs(layer, (torch.ones(1, 5, 8), memory, memory))
    assert count.of(layer.in_proj_weight) == 5 * 64 + 7 * 128


def test_an_encoder_layer_is_counted_although_torch_has_a_fused_form() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    count = count_macs(layer, torch.ones(1, 5, 8))
    assert count.total - count.activation_macs == 5 * (24 * 8 + 8 * 8 + 2 * 8 * 16)
    assert count.activation_macs == 5 * 5 * 8 * 2


def test_a_tied_weight_is_counted_once_for_each_use() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    count = count_macs(nn.Sequential(first, second), torch.ones(3, 4))
    assert [macs for _, macs in count.by_parameter] == [2 * 3 * 16]


def test_an_embedding_costs_nothing_unless_it_is_also_the_output_layer() -> None:
    words = torch.zeros(1, 5, dtype=torch.long)
    only = nn.Embedding(10, 4)
    assert count_macs(only, words).by_parameter == ()
    assert count_macs(only, words).uncounted == ()
    tied = Model(lambda self, x: F.linear(F.embedding(x, self.w), self.w), w=(10, 4))
    assert count_macs(tied, words).of(tied.w) == 5 * 40


def test_parameters_that_share_a_storage_are_told_apart() -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 5, bias=False))
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.utils.vector_to_parameters(flat, model.parameters())
    assert model[0].weight.untyped_storage().data_ptr() == model[1].weight.untyped_storage().data_ptr()
    assert [macs for _, macs in count_macs(model, torch.ones(1, 3)).by_parameter] == [12, 20]


def test_a_weight_times_a_mask_is_still_that_weight() -> None:
    model = Model(lambda self, x: F.linear(x, self.w * self.mask.float()), w=(4, 3))
    model.register_buffer("mask", torch.ones(4, 3, dtype=torch.bool))
    count = count_macs(model, torch.ones(2, 3))
    assert count.of(model.w) == 24
    assert count.uncounted == ()


def test_a_normalised_weight_is_still_that_weight() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    raw = layer.parametrizations.weight
    count = count_macs(layer, torch.ones(2, 3))
    assert count.of(raw.original1) == 24
    assert count.uncounted == ("aten._weight_norm_interface on parametrizations.weight.original0",)


def test_the_products_that_prepare_a_weight_are_counted_with_it() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
    raw = layer.parametrizations.weight.original
    assert (
        count_macs(layer, torch.ones(2, 3)).of(raw) == 24 + 12
    )  # the layer; weight times vector, for the norm


def test_a_weight_cast_by_autocast_is_still_that_weight() -> None:
    layer = nn.Linear(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert count_macs(layer, torch.ones(2, 3)).of(layer.weight) == 24


def test_learned_queries_are_the_input_of_a_layer_not_its_weight() -> None:
    model = Model(lambda self, x: F.linear(self.queries, self.w) @ x.mT, queries=(9, 3), w=(3, 3))
    count = count_macs(model, torch.ones(2, 5, 3))
    assert count.of(model.w) == 9 * 9
    assert count.activation_macs == 2 * 9 * 3 * 5
    assert count.uncounted == ("aten.mm on queries",)


def test_a_model_that_runs_in_inference_mode_is_counted() -> None:
    model = Model(
        torch.inference_mode()(lambda self, x: F.conv1d(F.linear(x, self.w), self.k)), w=(4, 3), k=(2, 5, 3)
    )
    count = count_macs(model, torch.ones(1, 5, 3))
    assert (count.of(model.w), count.of(model.k)) == (5 * 12, 2 * 30)


def test_a_compiled_model_is_counted() -> None:
    layer = nn.Linear(3, 4)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert count_macs(compiled, torch.ones(2, 3)).of(layer.weight) == 24


def test_a_model_on_the_meta_device_is_counted() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(300, 400), nn.BatchNorm1d(400), nn.Linear(400, 10))
        assert count_macs(model, torch.empty(1, 300)).total == 300 * 400 + 400 * 10


def test_an_lstm_is_named_as_not_counted() -> None:
    model = nn.Sequential()
    model.add_module("lstm", nn.LSTM(3, 4))
    count = count_macs(model, torch.ones(5, 1, 3))
    assert count.total == 0
    assert count.uncounted == (
        "aten.mkldnn_rnn_layer on lstm.weight_ih_l0",
        "aten.mkldnn_rnn_layer on lstm.weight_hh_l0",
    )


def test_a_gru_is_counted_step_by_step() -> None:
    gru = nn.GRU(3, 4)
    count = count_macs(gru, torch.ones(5, 1, 3))
    assert (count.of(gru.weight_ih_l0), count.of(gru.weight_hh_l0)) == (5 * 36, 5 * 48)


def test_a_layer_that_was_not_run_is_named() -> None:
    model = Model(lambda self, x: self.used(x))
    model.used, model.spare = nn.Linear(3, 4), nn.Linear(3, 4)
    assert count_macs(model, torch.ones(1, 3)).uncounted == ("spare.weight: not used in this forward pass",)


def test_a_parameter_that_is_only_added_is_named() -> None:
    model = Model(lambda self, x: x + self.position, position=(1, 5, 3))
    assert count_macs(model, torch.ones(1, 5, 3)).uncounted == ("aten.add on position",)


def test_a_use_without_a_formula_is_named_even_if_another_use_was_counted() -> None:
    model = Model(lambda self, x: F.bilinear(x, x, self.w) + F.linear(x, self.w[0]), w=(3, 3, 3))
    count = count_macs(model, torch.ones(2, 3))
    assert count.of(model.w) == 2 * 9
    assert count.uncounted == ("aten._trilinear on w",)


@pytest.fixture
def own_operation() -> Iterator[Any]:
    with torch.library._scoped_library("st3_test", "DEF") as library:
        library.define("mix(Tensor x) -> Tensor")
        library.impl("mix", lambda x: x @ x, "CompositeExplicitAutograd")
        yield torch.ops.st3_test.mix


def test_an_operation_from_outside_torch_is_named(own_operation: Any) -> None:
    count = count_macs(Model(lambda self, x: own_operation(x)), torch.ones(3, 3))
    assert count.uncounted == ("st3_test.mix: no formula for this operation",)


@pytest.mark.parametrize(
    ("example", "shape"),
    [
        (torch.ones(2, 3), "(2, 3)"),
        ((torch.ones(2, 3),), "(2, 3)"),
        ((torch.ones(2, 3), torch.ones(4)), "(2, 3), (4,)"),
        ({"x": torch.ones(2, 3), "flag": True}, "x (2, 3), flag bool"),
    ],
)
def test_a_tuple_holds_arguments_and_a_mapping_keywords(example: Any, shape: str) -> None:
    def function(self: Model, x: Tensor, other: Tensor | None = None, flag: bool = False) -> Tensor:
        return F.linear(x, self.w)  # type: ignore[arg-type]

    model = Model(function, w=(4, 3))
    count = count_macs(model, example)
    assert count.of(model.w) == 24
    assert count.input_shape == shape


def test_a_list_is_one_argument() -> None:
    model = Model(lambda self, xs: [F.linear(x, self.w) for x in xs], w=(4, 3))
    assert count_macs(model, [torch.ones(1, 3), torch.ones(2, 3)]).of(model.w) == 36


@pytest.mark.filterwarnings("ignore:Lazy modules")  # some versions of torch call them a new feature
def test_a_lazy_layer_is_refused_because_running_would_change_it() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(ValueError, match=r"parameter '0\.weight' has no shape yet: run the model once"):
        count_macs(model, torch.ones(1, 3))


def test_an_error_in_the_model_names_the_input() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as error:
        count_macs(nn.Linear(3, 4), torch.ones(2, 5))
    assert error.value.__notes__ == ["while counting the MACs of Linear for the input (2, 5)"]


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.distributed
def test_a_sharded_model_is_not_run_and_named_as_uncounted(process_group: None) -> None:
    from torch.distributed.tensor import DTensor, distribute_tensor, init_device_mesh

    model = Model(lambda self, x: pytest.fail("was run"), w=(4, 3))
    model.w = nn.Parameter(distribute_tensor(model.w.detach(), init_device_mesh("cpu", (1,))))
    assert isinstance(model.w, DTensor)
    count = count_macs(model, torch.ones(1, 3))
    assert (count.by_parameter, count.total) == ((), 0)
    assert count.uncounted == ("w (sharded: not counted)",)


@pytest.mark.distributed
def test_a_replicated_model_is_counted_without_its_wrapper(process_group: None) -> None:
    layer = nn.Linear(3, 4)
    wrapped = nn.parallel.DistributedDataParallel(layer)
    assert count_macs(wrapped, torch.ones(2, 3)).of(layer.weight) == 24
