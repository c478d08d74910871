"""Which weights are sparsified, under which name, and the reason for every other one."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

import st3
from st3.core.layers.filters import Filters
from st3.core.layers.find import find_layers, named_weights, unwrap
from st3.core.layers.layer import Layer
from st3.core.layers.patterns import FIRST, LAST, USUAL
from st3.core.layers.shards import UNSHARDED


class Net(nn.Module):
    """conv1, two blocks of a convolution and a norm, a head of two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)) for _ in range(2)))
        self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


ALL = ["conv1.weight", "blocks.0.0.weight", "blocks.1.0.weight", "head.0.weight", "head.2.weight"]


def covered(model, **choice):
    return [layer.name for layer in find_layers(model, **choice)]


def reasons(model, **choice):
    return {skipped.name: skipped.reason for skipped in find_layers(model, **choice).skipped}


def reasons_shown(model, **choice):
    """As `reasons`, for a model that may have nothing to sparsify."""
    return {skipped.name: skipped.reason for skipped in st3.layers(model, **choice).skipped}


# ---------------------------------------------------------------- what is covered by default


def test_convolutions_and_linear_layers_are_covered_and_norms_and_biases_are_not():
    layers = find_layers(Net())
    assert [layer.name for layer in layers] == ALL
    assert layers.skipped == ()  # biases and norms are not worth a line each


@pytest.mark.parametrize(
    ("module", "filters"),
    [
        (nn.Conv1d(4, 6, 3), Filters()),
        (nn.Conv2d(4, 6, 3), Filters()),
        (nn.Conv3d(4, 6, 3), Filters()),
        (nn.Conv2d(4, 8, 3, groups=4), Filters()),
        (nn.ConvTranspose1d(4, 6, 3), Filters(axis=1)),
        (nn.ConvTranspose2d(4, 6, 3), Filters(axis=1)),
        (nn.ConvTranspose3d(4, 6, 3), Filters(axis=1)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), Filters(axis=1, groups=2)),
        (nn.Linear(4, 6), Filters()),
        (nn.Bilinear(4, 5, 6), Filters()),
        (Conv1D(6, 4), Filters(axis=1)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_every_kind_of_layer_is_covered_with_its_output_axis(module, filters):
    (layer,) = find_layers(module)
    assert layer.name == "weight"
    assert layer.kind == type(module).__name__
    assert layer.parameter is module.weight
    assert layer.filters == filters
    assert layer.shape == tuple(module.weight.shape)
    assert layer.numel == module.weight.numel()
    assert layer.shards == UNSHARDED
    assert layer.sparsity is None
    outputs = getattr(module, "out_channels", None) or getattr(module, "out_features", None) or module.nf
    assert filters.count(layer.shape) == outputs


def test_a_subclass_of_a_layer_is_covered():
    class Own(nn.Linear):
        pass

    (layer,) = find_layers(Own(2, 3))
    assert layer.kind == "Own"


def test_packed_attention_is_covered_with_its_output_projection():
    layers = find_layers(nn.MultiheadAttention(8, 2))
    assert {layer.name: layer.shape for layer in layers} == {
        "in_proj_weight": (24, 8),
        "out_proj.weight": (8, 8),
    }
    assert layers.skipped == ()


def test_attention_with_separate_projections_is_covered():
    layers = find_layers(nn.MultiheadAttention(8, 2, kdim=3, vdim=5))
    assert {layer.name: layer.shape for layer in layers} == {
        "q_proj_weight": (8, 8),
        "k_proj_weight": (8, 3),
        "v_proj_weight": (8, 5),
        "out_proj.weight": (8, 8),
    }


def test_the_extra_key_and_value_of_attention_are_biases_in_all_but_shape():
    skipped = reasons(nn.MultiheadAttention(8, 2, add_bias_kv=True))
    assert set(skipped) == {"bias_k", "bias_v"}


def test_a_whole_transformer_layer_is_covered():
    assert covered(nn.TransformerEncoderLayer(8, 2, 16)) == [
        "self_attn.in_proj_weight",
        "self_attn.out_proj.weight",
        "linear1.weight",
        "linear2.weight",
    ]


# ---------------------------------------------------------------- the real Hugging Face model


@pytest.fixture(scope="module")
def gpt2():
    config = GPT2Config(
        vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


BLOCK = "transformer.h.0."


def test_gpt2_is_covered_with_its_filters_along_the_second_axis(gpt2):
    layers = find_layers(gpt2)
    assert {layer.name: layer.shape for layer in layers} == {
        BLOCK + "attn.c_attn.weight": (8, 24),
        BLOCK + "attn.c_proj.weight": (8, 8),
        BLOCK + "mlp.c_fc.weight": (8, 32),
        BLOCK + "mlp.c_proj.weight": (32, 8),
    }
    assert {layer.kind for layer in layers} == {"Conv1D"}
    assert {layer.filters for layer in layers} == {Filters(axis=1)}


def test_the_head_of_gpt2_is_tied_to_its_embedding_and_left_out(gpt2):
    assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
    assert reasons(gpt2) == {
        "transformer.wte.weight": "tied to an embedding",
        "transformer.wpe.weight": "an embedding",
    }


def test_the_filters_of_conv1d_are_the_weights_that_feed_one_output():
    module = Conv1D(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]))
        module.bias.zero_()
    (layer,) = find_layers(module)
    outputs = module(torch.ones(1, 2))
    assert torch.equal(layer.filters.sums(module.weight.detach()), outputs)


# ---------------------------------------------------------------- what is left out, and why


def test_embeddings_are_left_out_unless_they_are_included():
    model = nn.ModuleDict(
        {"embed": nn.Embedding(10, 4), "bag": nn.EmbeddingBag(10, 4), "fc": nn.Linear(4, 2)}
    )
    assert covered(model) == ["fc.weight"]
    assert reasons(model) == {"embed.weight": "an embedding", "bag.weight": "an embedding"}
    assert covered(model, include=nn.Embedding) == ["embed.weight"]
    assert covered(model, include=[nn.Embedding, nn.Linear]) == ["embed.weight", "fc.weight"]
    assert covered(model, include=[USUAL, "bag"]) == ["bag.weight", "fc.weight"]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_weights_are_left_out_unless_they_are_included(kind):
    model = nn.ModuleDict({"rnn": kind(3, 4), "fc": nn.Linear(4, 2)})
    why = f"{kind.__name__} is not covered by default (include its name or type)"
    assert reasons(model) == {"rnn.weight_ih_l0": why, "rnn.weight_hh_l0": why}
    assert covered(model, include=[kind, "fc"]) == ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "fc.weight"]


def test_a_layer_nobody_knows_is_left_out_unless_it_is_included():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.ones(2, 3))

    model = nn.ModuleDict({"own": Own(), "fc": nn.Linear(4, 2)})
    assert reasons(model) == {"own.kernel": "Own is not covered by default (include its name or type)"}
    assert covered(model, include=Own) == ["own.kernel"]


def test_a_frozen_weight_is_left_out():
    model = Net()
    model.conv1.weight.requires_grad_(False)
    assert covered(model) == ALL[1:]
    assert reasons(model) == {"conv1.weight": "does not require a gradient"}


def test_a_look_at_a_frozen_model_finds_the_layers_of_the_trained_one():
    model = nn.ModuleDict({"embed": nn.Embedding(50, 4), "lstm": nn.LSTM(4, 4), "fc": nn.Linear(4, 2)})
    with torch.no_grad():
        model["fc"].weight[0] = 0.0
    before = st3.report(model)
    model.requires_grad_(False)
    after = st3.report(model)
    assert [row.name for row in after.rows] == ["fc.weight"]
    assert after.sparsity == before.sparsity == 0.5
    assert after.skipped == before.skipped
    assert [row.name for row in st3.report(model, include=[USUAL, "embed"]).rows] == [
        "embed.weight",
        "fc.weight",
    ]
    assert reasons_shown(model) == {
        "embed.weight": "an embedding",
        "lstm.weight_ih_l0": "LSTM is not covered by default (include its name or type)",
        "lstm.weight_hh_l0": "LSTM is not covered by default (include its name or type)",
        "fc.weight": "does not require a gradient",
    }


def test_a_lazy_layer_is_left_out_until_it_has_seen_a_batch():
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    layers = find_layers(model)
    assert [layer.name for layer in layers] == ["1.weight"]
    assert {s.name: s.reason for s in layers.skipped}["0.weight"] == (
        "not initialised yet: run one batch through the model first"
    )
    assert "0.weight" in str(layers)
    model(torch.ones(1, 3))
    assert covered(model) == ["0.weight", "1.weight"]


def test_a_model_of_lazy_layers_only_says_what_to_do():
    with pytest.raises(LookupError, match=r"0\.weight \(not initialised yet: run one batch"):
        find_layers(nn.Sequential(nn.LazyLinear(4)))


def test_a_model_without_any_weight_of_two_axes():
    with pytest.raises(LookupError) as error:
        find_layers(nn.BatchNorm2d(4))
    assert str(error.value) == "no layer is left to sparsify: the model has no weight of two or more axes"


def test_a_model_of_which_nothing_is_left_says_why_for_every_weight():
    with pytest.raises(LookupError) as error:
        find_layers(nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 2)), exclude="1")
    seen = "0.weight (an embedding); 1.weight (excluded by '1')"
    assert str(error.value) == f"no layer is left to sparsify: {seen}"


def test_a_long_list_of_reasons_is_cut_short():
    with pytest.raises(LookupError, match=r"7\.weight \(an embedding\) and 4 more$"):
        find_layers(nn.Sequential(*(nn.Embedding(3, 4) for _ in range(12))))


# ---------------------------------------------------------------- tied weights


def tied():
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4, bias=False)})
    model["second"].weight = model["first"].weight
    return model


def test_a_tied_weight_counts_once_under_its_first_name():
    model = tied()
    layers = find_layers(model)
    assert [layer.name for layer in layers] == ["first.weight"]
    assert layers[0].numel == 16
    ((name, parameter),) = [weight for weight in named_weights(model) if weight[1].dim() > 1]
    assert name == "first.weight"
    assert parameter is model["first"].weight


def test_a_tied_weight_is_meant_by_either_of_its_names():
    """`exclude="lm_head"` is how a user of a language model says it; that this weight exists is plain to see."""
    model = nn.ModuleDict({**tied(), "other": nn.Linear(4, 4)})
    assert covered(model, exclude="first") == ["other.weight"]
    assert covered(model, exclude="second") == ["other.weight"]


def test_a_module_used_twice_counts_once():
    block = nn.Linear(4, 4)
    assert covered(nn.Sequential(block, nn.ReLU(), block)) == ["0.weight"]


def test_a_weight_tied_to_an_embedding_comes_along_when_embeddings_are_included():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["embed"].weight
    with pytest.raises(LookupError, match=r"embed\.weight \(tied to an embedding\)"):
        find_layers(model)
    assert covered(model, include=nn.Embedding) == ["embed.weight"]


# ---------------------------------------------------------------- choosing


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("head", ALL[3:]),
        ("head.0", ["head.0.weight"]),
        ("blocks.*.0", ALL[1:3]),
        (re.compile(r"blocks\.1|head\.2"), ["blocks.1.0.weight", "head.2.weight"]),
        (nn.Conv2d, ALL[:3]),
        (lambda name, module: isinstance(module, nn.Linear) and module.out_features == 2, ["head.2.weight"]),
        (["conv1", nn.Linear], ["conv1.weight", "head.0.weight", "head.2.weight"]),
        (nn.Module, ALL),
    ],
)
def test_include_restricts_and_exclude_leaves_out_by_the_same_patterns(include, expected):
    assert covered(Net(), include=include) == expected
    if expected != ALL:
        assert covered(Net(), exclude=include) == [name for name in ALL if name not in expected]


def test_a_name_brings_in_what_is_not_covered_by_default():
    model = nn.ModuleDict({"lstm": nn.LSTM(3, 4, num_layers=2), "fc": nn.Linear(4, 2)})
    assert covered(model, include="lstm.weight_hh_l0") == ["lstm.weight_hh_l0"]
    assert covered(model, include="lstm.weight_ih*") == ["lstm.weight_ih_l0", "lstm.weight_ih_l1"]
    assert covered(model, include=re.compile("_l1$")) == ["lstm.weight_ih_l1", "lstm.weight_hh_l1"]
    assert covered(model, include=lambda name, module: name == "lstm.weight_hh_l1") == ["lstm.weight_hh_l1"]
    assert len(covered(model, include="lstm")) == 4


def test_usual_stands_for_what_is_covered_without_include():
    model = nn.ModuleDict(
        {"embed": nn.Embedding(5, 3), "lstm": nn.LSTM(3, 4), "hidden": nn.Linear(4, 4), "fc": nn.Linear(4, 2)}
    )
    assert covered(model, include=USUAL) == covered(model) == ["hidden.weight", "fc.weight"]
    assert covered(model, include=[USUAL, nn.Embedding]) == ["embed.weight", "hidden.weight", "fc.weight"]
    assert covered(model, include=[USUAL, "lstm*"], exclude=["fc", "*_ih_*"]) == [
        "lstm.weight_hh_l0",
        "hidden.weight",
    ]
    assert reasons(model, include=[USUAL, "lstm"]) == {"embed.weight": "an embedding"}
    assert reasons(model, include="lstm") == dict.fromkeys(
        ["embed.weight", "hidden.weight", "fc.weight"], "not included"
    )


def test_usual_may_find_nothing_where_another_pattern_does():
    assert covered(nn.LSTM(3, 4), include=[USUAL, "weight_hh_l0"]) == ["weight_hh_l0"]


def test_the_name_of_a_module_above_means_the_usual_weights_below_it():
    """A user who restricts to an encoder does not ask for its embedding."""
    encoder = nn.ModuleDict({"embed": nn.Embedding(5, 3), "fc": nn.Linear(3, 3)})
    model = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(3, 2)})
    assert covered(model, include="encoder") == ["encoder.fc.weight"]
    assert covered(model, include="encoder.embed") == ["encoder.embed.weight"]
    assert covered(model, include="encoder*") == ["encoder.embed.weight", "encoder.fc.weight"]


def test_a_module_above_nothing_usual_is_refused_with_the_reasons():
    model = nn.ModuleDict(
        {"encoder": nn.Sequential(nn.Embedding(5, 3), nn.LSTM(3, 4)), "head": nn.Linear(4, 2)}
    )
    with pytest.raises(LookupError) as error:
        find_layers(model, include=["encoder", "head"])
    why = "LSTM is not covered by default (include its name or type)"
    assert str(error.value) == (
        "include names 'encoder', but nothing of it can be sparsified (encoder.0.weight: an embedding; "
        f"encoder.1.weight_ih_l0: {why}; encoder.1.weight_hh_l0: {why})"
    )


def test_biases_and_norms_are_never_covered_not_even_by_name():
    with pytest.raises(LookupError) as error:
        find_layers(Net(), include="head.0.bias")
    assert str(error.value) == (
        "include names 'head.0.bias', but nothing of it can be sparsified (biases and norms never are)"
    )
    attention = nn.MultiheadAttention(8, 2, add_bias_kv=True)
    with pytest.raises(LookupError, match=r"include names 'bias_k', .* \(bias_k: a bias\)$"):
        find_layers(attention, include="bias_k")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"include": FIRST}, "include does not take st3.FIRST: it belongs into exclude"),
        ({"include": ["head", LAST]}, "include does not take st3.LAST: it belongs into exclude"),
        ({"exclude": [USUAL]}, "exclude does not take st3.USUAL: it belongs into include"),
    ],
)
def test_a_constant_in_the_wrong_argument_is_refused(choice, message):
    with pytest.raises(ValueError) as error:
        find_layers(Net(), **choice)
    assert str(error.value) == message


def test_exclude_goes_before_include():
    assert covered(Net(), include="head", exclude="head.0") == ["head.2.weight"]


def test_the_reason_names_the_pattern_that_left_a_weight_out():
    assert reasons(Net(), exclude=[re.compile(r"^head\.0"), nn.Conv2d]) == {
        "conv1.weight": "excluded by Conv2d",
        "blocks.0.0.weight": "excluded by Conv2d",
        "blocks.1.0.weight": "excluded by Conv2d",
        "head.0.weight": r"excluded by re.compile('^head\\.0')",
    }
    assert reasons(Net(), include=nn.Linear, exclude="head.2.*ght") == {
        "conv1.weight": "not included",
        "blocks.0.0.weight": "not included",
        "blocks.1.0.weight": "not included",
        "head.2.weight": "excluded by 'head.2.*ght'",
    }


def test_first_and_last_are_excluded_by_position():
    assert covered(Net(), exclude=FIRST) == ALL[1:]
    assert covered(Net(), exclude=LAST) == ALL[:-1]
    assert covered(Net(), exclude=[FIRST, LAST]) == ALL[1:-1]
    assert reasons(Net(), exclude=[FIRST, LAST]) == {
        "conv1.weight": "excluded: the first layer",
        "head.2.weight": "excluded: the last layer",
    }


def test_first_and_last_are_those_of_the_layers_that_are_left():
    assert covered(Net(), exclude=["conv1", FIRST]) == ALL[2:]
    assert covered(Net(), include=nn.Conv2d, exclude=LAST) == ALL[:2]


def test_excluding_the_only_layer_leaves_none():
    with pytest.raises(LookupError) as error:
        find_layers(nn.Linear(2, 2), exclude=FIRST)
    assert str(error.value) == "no layer is left to sparsify: weight (excluded: the first layer)"


# ---------------------------------------------------------------- a sparsity of its own


def test_a_layer_may_have_a_sparsity_of_its_own():
    layers = find_layers(Net(), layer_sparsity={"conv1": 0.5, "head.*": 0.75})
    assert {layer.name: layer.sparsity for layer in layers} == {
        "conv1.weight": 0.5,
        "blocks.0.0.weight": None,
        "blocks.1.0.weight": None,
        "head.0.weight": 0.75,
        "head.2.weight": 0.75,
    }


def test_of_two_names_for_a_layer_the_first_decides():
    layers = find_layers(Net(), layer_sparsity={"head.0": 0.25, "head": 0.75})
    assert [layer.sparsity for layer in layers][3:] == [0.25, 0.75]


def test_a_sparsity_for_what_is_no_sparsified_layer_is_not_ignored():
    """It would be lost in silence: the norm has no sparsity, the excluded layer none of its own."""
    with pytest.raises((LookupError, ValueError)):
        find_layers(Net(), layer_sparsity={"blocks.0.1": 0.5})
    with pytest.raises((LookupError, ValueError)):
        find_layers(Net(), exclude="head", layer_sparsity={"head.0": 0.5})


# ---------------------------------------------------------------- patterns that match nothing


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_name_that_matches_nothing_is_answered_with_near_misses(argument):
    with pytest.raises(LookupError) as error:
        find_layers(Net(), **{argument: "conv2"})
    assert str(error.value) == "no weight of the model matches 'conv2' (near misses: conv1, conv1.bias)"


def test_a_layer_sparsity_that_matches_nothing_is_answered_with_near_misses():
    with pytest.raises(LookupError, match=r"^no weight of the model matches 'haed' \(near misses: head\b"):
        find_layers(Net(), layer_sparsity={"haed": 0.5})


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (re.compile("xyz"), "re.compile('xyz')"),
        (nn.LSTM, "LSTM"),
        ("xyz", "'xyz'"),
    ],
)
def test_a_pattern_without_near_misses_is_named_with_what_there_is(pattern, words):
    with pytest.raises(LookupError) as error:
        find_layers(Net(), exclude=pattern)
    there = "it has 'conv1.weight', 'conv1.bias', 'blocks.0.0.weight' and 11 more"
    assert str(error.value) == f"no weight of the model matches {words} ({there})"


def test_all_unmatched_patterns_are_told_at_once():
    with pytest.raises(LookupError) as error:
        find_layers(Net(), include=["conv1", "hed.0"], exclude=[nn.LSTM])
    unmatched = "'hed.0' (near misses: head.0, head.2, head); LSTM (it has "
    assert str(error.value).startswith(f"no weight of the model matches {unmatched}")


# ---------------------------------------------------------------- wrapped models


def test_the_names_of_an_averaged_model_are_those_of_the_model_inside():
    model = Net()
    average = AveragedModel(model)
    layers = find_layers(average, exclude="head")
    assert [layer.name for layer in layers] == ALL[:3]
    assert layers[0].parameter is average.module.conv1.weight
    assert layers[0].parameter is not model.conv1.weight


def test_the_names_of_a_data_parallel_model_are_those_of_the_model_inside():
    model = Net()
    layers = find_layers(nn.DataParallel(model), exclude=FIRST)
    assert [layer.name for layer in layers] == ALL[1:]
    assert layers["head.0"].parameter is model.head[0].weight


def test_the_names_of_a_compiled_model_are_those_of_the_model_inside():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    assert next(name for name, _ in compiled.named_parameters()) == "_orig_mod.conv1.weight"
    layers = find_layers(compiled, layer_sparsity={"conv1": 0.5})
    assert [layer.name for layer in layers] == ALL
    assert layers["conv1"].parameter is model.conv1.weight


def test_a_compiled_part_of_a_model_does_not_show_in_the_names():
    model = Net()
    model.head = torch.compile(model.head, backend="eager")
    assert covered(model) == ALL


def test_wrappers_may_be_stacked():
    model = Net()
    wrapped = nn.DataParallel(torch.compile(AveragedModel(model), backend="eager"))
    assert covered(wrapped) == ALL
    assert isinstance(unwrap(wrapped), Net)


def test_a_part_that_happens_to_be_called_module_is_no_wrapper():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 2)
            self.head = nn.Linear(2, 2)

    assert covered(Own()) == ["module.weight", "head.weight"]


# ---------------------------------------------------------------- the collection


def test_layers_are_found_by_position_by_name_and_without_the_word_weight():
    layers = find_layers(Net())
    assert len(layers) == 5
    assert layers[0] is layers["conv1.weight"] is layers["conv1"]
    assert layers[-1] is layers["head.2"]
    assert list(layers) == [layers[i] for i in range(5)]


def test_a_layer_asked_for_by_a_wrong_name_is_answered_with_near_misses():
    with pytest.raises(LookupError) as error:
        find_layers(Net())["conv2"]
    assert str(error.value) == "no sparsified layer 'conv2'; near misses: conv1"
    with pytest.raises(LookupError, match=r"^no sparsified layer 'xyz'; near misses: none$"):
        find_layers(Net())["xyz"]


def test_the_table_shows_every_weight_and_every_reason():
    model = nn.Sequential(nn.Embedding(1000, 4), nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.Linear(8, 2))
    layers = find_layers(model, layer_sparsity={"3": 0.5})
    assert str(layers) == repr(layers)
    assert str(layers).splitlines() == [
        "layer     kind       shape   weights",
        "1.weight  Conv1d     8x4x3        96  sparsified",
        "3.weight  Linear     2x8          16  sparsity of its own: 0.5",
        "0.weight  Embedding  1000x4    4,000  skipped: an embedding",
        "2 layers with 112 weights sparsified",
    ]


def test_finding_layers_leaves_the_model_as_it_was():
    model = Net()
    before = copy.deepcopy(model.state_dict())
    find_layers(model)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_layers_shows_what_sparsify_would_cover_and_attaches_nothing():
    model = Net()
    before = copy.deepcopy(model.state_dict())
    shown = st3.layers(model, exclude=[FIRST, nn.Linear])
    assert [layer.name for layer in shown] == ALL[1:3]
    assert {s.name for s in shown.skipped} == {ALL[0], *ALL[3:]}
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    sparsifier = st3.sparsify(
        model, torch.optim.SGD(model.parameters()), sparsity=0.5, total_steps=1, exclude=[FIRST, nn.Linear]
    )
    assert str(sparsifier.layers) == str(shown)


def test_layers_shows_the_reasons_even_where_nothing_is_left():
    assert str(st3.layers(nn.Embedding(3, 4))).splitlines() == [
        "layer   kind       shape  weights",
        "weight  Embedding  3x4         12  skipped: an embedding",
        "0 layers with 0 weights sparsified",
    ]


def test_layers_refuses_a_pattern_that_matches_nothing():
    with pytest.raises(LookupError, match=r"^no weight of the model matches 'conv2' \(near misses: conv1"):
        st3.layers(Net(), exclude="conv2")


# ---------------------------------------------------------------- filter means


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), [[2.5], [6.5]]),
        (Filters(axis=1), [[3.0, 4.0, 5.0, 6.0]]),
    ],
)
def test_filter_means_are_means_over_each_filter(filters, expected):
    weight = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    layer = Layer("layer", nn.Parameter(weight), "Linear", filters, UNSHARDED)
    assert layer.filter_means(weight).tolist() == expected


def test_filter_means_of_some_rows_are_those_of_these_filters():
    weight = torch.arange(12.0).reshape(4, 3)
    layer = Layer("layer", nn.Parameter(weight), "Linear", Filters(), UNSHARDED)
    assert torch.equal(layer.filter_means(weight[1:3]), layer.filter_means(weight)[1:3])


def test_filter_means_of_a_grouped_transposed_convolution_reach_every_weight_of_their_filter():
    module = nn.ConvTranspose1d(4, 4, 2, groups=2, bias=False)  # weight (4, 2, 2): two inputs per group
    (layer,) = find_layers(module)
    weight = torch.arange(16.0).reshape(4, 2, 2)
    means = layer.filter_means(weight)
    by_hand = [  # group 0: inputs 0, 1; group 1: inputs 2, 3
        [[(0 + 1 + 4 + 5) / 4], [(2 + 3 + 6 + 7) / 4]],
        [[(0 + 1 + 4 + 5) / 4], [(2 + 3 + 6 + 7) / 4]],
        [[(8 + 9 + 12 + 13) / 4], [(10 + 11 + 14 + 15) / 4]],
        [[(8 + 9 + 12 + 13) / 4], [(10 + 11 + 14 + 15) / 4]],
    ]
    assert means.tolist() == by_hand
