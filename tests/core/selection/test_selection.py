"""Selection finds what a sort finds: for every precision, factor, layout and hint."""

import itertools
import math
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from st3.core.layers.shards import UNSHARDED, Shards
from st3.core.selection import bits, cpu
from st3.core.selection.select import Hint, Quota, Selected, quota, select, threshold_between
from st3.models import MODELS


def by_sorting(tensors, k, factors=None):
    """Return low, high and surplus the slow and obvious way. Factors are applied in the precision of the search."""
    factors = [1.0] * len(tensors) if factors is None else factors
    wide = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    scores = torch.cat([(t.to(wide).abs() * f).flatten() for t, f in zip(tensors, factors, strict=True)])
    ordered = scores.sort().values  # NaN last
    low = ordered[k - 1].item()
    high = ordered[k].item() if k < len(ordered) else math.inf
    return low, high, int((ordered[k:] == low).sum())


def on_cpu(tensors, k, factors=None, hint=None):
    return answer(select(tensors, k, factors=factors, hint=hint))


def by_bits(tensors, k, factors=None, hint=None):
    hint = Hint() if hint is None else hint
    return answer(bits.select(tensors, k, factors, [UNSHARDED] * len(tensors), hint))


def answer(selected):
    return float(selected.low), float(selected.high), int(selected.surplus)


SEARCHES = {"cpu": on_cpu, "bits": by_bits}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)

finite = st.floats(-1e30, 1e30)
few_values = st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1e-45, -1e-40, 3e38])
any_value = st.one_of(finite, few_values)


@st.composite
def pools(draw, values=any_value):
    """Draw one to four layers of one to twenty weights, and a rank."""
    layers = draw(st.lists(st.lists(values, min_size=1, max_size=20), min_size=1, max_size=4))
    return layers, draw(st.integers(1, sum(map(len, layers))))


def as_tensors(layers, dtype):
    return [torch.tensor(layer, dtype=torch.float64).to(dtype) for layer in layers]


# ---------------------------------------------------------------- a sort agrees


@every_search
@every_dtype
@settings(max_examples=40)
@given(pool=pools())
def test_it_finds_what_a_sort_finds(search, dtype, pool):
    layers, k = pool
    tensors = as_tensors(layers, dtype)
    assert search(tensors, k) == by_sorting(tensors, k)


@every_search
@every_dtype
@settings(max_examples=40)
@given(pool=pools(finite), factors=st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4))
def test_it_finds_what_a_sort_of_scaled_magnitudes_finds(search, dtype, pool, factors):
    layers, k = pool
    tensors, factors = as_tensors(layers, dtype), factors[: len(layers)]
    assert search(tensors, k, factors) == by_sorting(tensors, k, factors)


@every_search
@given(pool=pools(few_values))
def test_ties_are_counted(search, pool):
    layers, k = pool
    tensors = as_tensors(layers, torch.float32)
    low, high, surplus = search(tensors, k)
    at_most = sum(int((t.abs() <= low).sum()) for t in tensors)
    assert at_most == k + surplus
    assert (high == low) == (surplus > 0)


@every_search
def test_the_numbers_of_the_two_layer_example(search):
    """0.1 0.2 0.2 0.3 0.3 0.4 | 0.4 0.5 0.5 0.6 0.7 0.8, a tie between the layers at the sixth place."""
    first = torch.tensor([[0.5, -0.4], [0.3, -0.2]], dtype=torch.float64)
    second = torch.tensor([[0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8]], dtype=torch.float64)
    assert search([first, second], 6) == (0.4, 0.4, 1)
    assert search([first, second], 7) == (0.4, 0.5, 0)
    assert search([first, second], 1) == (0.1, 0.2, 0)
    assert search([first, second], 12) == (0.8, math.inf, 0)


@every_search
@pytest.mark.parametrize("shape", [(1,), (1, 1), ()])
def test_one_weight_is_its_own_answer(search, shape):
    assert search([torch.full(shape, -0.25)], 1) == (0.25, math.inf, 0)


@every_search
def test_all_weights_zero(search):
    assert search([torch.zeros(3, 4), -torch.zeros(5)], 4) == (0.0, 0.0, 13)


@every_search
def test_an_empty_layer_among_others_plays_no_part(search):
    assert search([torch.empty(0, 4), torch.tensor([2.0, -1.0])], 1) == (1.0, 2.0, 0)


@every_search
def test_infinite_weights_are_the_largest(search):
    weights = torch.tensor([math.inf, 1.0, -math.inf, -2.0])
    assert search([weights], 1) == (1.0, 2.0, 0)
    assert search([weights], 2) == (2.0, math.inf, 0)
    assert search([weights], 3) == (math.inf, math.inf, 1)


@every_search
def test_weights_that_are_not_numbers_come_last_as_in_a_sort(search):
    weights = torch.tensor([math.nan, 1.0, -math.nan, -2.0, 3.0])
    assert search([weights], 1) == (1.0, 2.0, 0)
    assert search([weights], 2) == (2.0, 3.0, 0)
    assert search([weights], 3)[0] == 3.0
    assert math.isnan(search([weights], 4)[0])


@pytest.mark.parametrize("k", [0, -1, 5])
def test_a_rank_outside_the_pool_is_refused(k):
    with pytest.raises(ValueError, match=rf"^asked for the {k}-th smallest of 4 weights$"):
        select([torch.ones(4)], k)


@every_search
def test_layers_of_different_precision_may_share_a_pool(search):
    tensors = [torch.tensor([0.1, 0.3]).bfloat16(), torch.tensor([0.1, 0.2]), torch.tensor([0.1]).double()]
    for k in range(1, 6):
        assert search(tensors, k) == by_sorting(tensors, k)


# ---------------------------------------------------------------- layouts

LAYOUTS = {
    "transposed": lambda t: t.transpose(0, 1),
    "every second": lambda t: t[:, ::2],
    "a slice": lambda t: t[1:, 2:, 1:],
    "channels_last": lambda t: t.to(memory_format=torch.channels_last),
    "expanded": lambda t: t[:, :1].expand(t.shape),
    "permuted": lambda t: t.permute(3, 1, 0, 2),
}


@every_search
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_memory_layout_gives_the_same_answer_and_stays_untouched(search, layout):
    torch.manual_seed(0)
    weight = layout(torch.randn(6, 5, 4, 3))
    before = weight.clone(memory_format=torch.contiguous_format)
    for k in (1, 7, weight.numel() // 2, weight.numel()):
        assert search([weight], k) == by_sorting([before], k)
    assert torch.equal(weight, before)


@every_search
def test_a_parameter_that_requires_a_gradient_can_be_searched(search):
    assert search([nn.Parameter(torch.tensor([3.0, -1.0, 2.0]))], 2) == (2.0, 3.0, 0)


# ---------------------------------------------------------------- brackets and hints


@pytest.fixture(scope="class")
def small_pieces():
    """Let the search on the CPU take samples, brackets and pieces at a size that can be tried many times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "CHUNK", 16)
        patch.setattr(cpu, "SAMPLE", 8)
        yield


hints = st.builds(
    Hint,
    low=st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0, math.inf])),
    previous=st.one_of(st.none(), st.floats(width=32)),
    width=st.sampled_from([0.0, 1e-4, 0.01, 0.25, 1.0, 10.0, math.inf]),
)


@pytest.mark.usefixtures("small_pieces")
class TestBrackets:
    @pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
    @given(
        weights=st.lists(st.one_of(few_values, st.floats(-2, 2, width=32)), min_size=40, max_size=120),
        share=st.floats(0, 1),
        hint=hints,
    )
    def test_no_hint_changes_the_result(self, weights, share, hint):
        tensors = [torch.tensor(weights)]
        k = 1 + int(share * (len(weights) - 1))
        assert on_cpu(tensors, k, hint=hint) == by_sorting(tensors, k)

    @settings(max_examples=40)
    @given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf, math.nan]), min_size=40, max_size=80))
    def test_ties_infinities_and_nan_do_not_change_the_result(self, weights):
        tensors = [torch.tensor(weights)]
        for k in (1, len(weights) // 2, len(weights)):
            for low in (None, 0.5, 1.0, math.inf, math.nan):
                found = on_cpu(tensors, k, hint=Hint(low=low))
                assert found == pytest.approx(by_sorting(tensors, k), nan_ok=True, abs=0, rel=0)

    @settings(max_examples=50)
    @given(seed=st.integers(0, 10_000), k=st.integers(1, 3000))
    def test_a_sample_finds_the_bracket_of_any_rank(self, seed, k):
        generator = torch.Generator().manual_seed(seed)
        tensors = [torch.randn(1000, generator=generator), torch.randn(2000, generator=generator) * 1e-3]
        assert on_cpu(tensors, k) == by_sorting(tensors, k)

    @settings(max_examples=25)
    @given(seed=st.integers(0, 10_000), speed=st.floats(0, 0.5), jump=st.floats(1e-6, 1e6))
    def test_a_hint_carried_from_step_to_step_follows_the_weights(self, seed, speed, jump):
        generator = torch.Generator().manual_seed(seed)
        weights, hint = torch.randn(500, generator=generator, dtype=torch.float64), Hint()
        for step in range(8):
            weights += speed * torch.randn(500, generator=generator, dtype=torch.float64)
            if step == 5:
                weights *= jump
            k = 1 + 60 * step
            assert on_cpu([weights], k, hint=hint) == by_sorting([weights], k)

    def test_brackets_work_with_factors_and_many_layers(self):
        torch.manual_seed(0)
        tensors, hint = [torch.randn(100) * 10.0**-i for i in range(5)], Hint()
        factors = [1.0, 3.0, 10.0, 0.5, 2.0]
        for k in (1, 2, 100, 250, 251, 400, 499, 500):
            assert on_cpu(tensors, k, factors, hint) == by_sorting(tensors, k, factors)


def test_the_hint_remembers_the_last_two_answers():
    hint = Hint()
    select([torch.tensor([1.0, 2.0, 3.0])], 1, hint=hint)
    assert (hint.low, hint.previous) == (1.0, None)
    select([torch.tensor([1.0, 2.0, 3.0])], 2, hint=hint)
    assert (hint.low, hint.previous) == (2.0, 1.0)


def test_real_sized_pools_are_searched_by_bracket_with_good_and_bad_hints():
    """Above 65,536 weights hints are used, above 262,144 samples: here nothing is made smaller."""
    torch.manual_seed(0)
    tensors = [torch.randn(100_000), torch.randn(200, 1000) * 0.1, torch.zeros(10_000)]
    for k in (1, 9_999, 10_000, 10_001, 279_000, 309_999, 310_000):
        expected = by_sorting(tensors, k)
        for low in (None, expected[0], expected[0] * 1.5, 1e-30, 1e30):
            assert on_cpu(tensors, k, hint=Hint(low=low)) == expected


def test_two_threads_find_what_one_finds():
    torch.manual_seed(0)
    tensors = [torch.randn(cpu.PARALLEL_FROM // 2 + 7) for _ in range(2)]
    threads = torch.get_num_threads()
    k = 7_654_321 * sum(t.numel() for t in tensors) // 10_000_000
    expected = on_cpu(tensors, k)
    torch.set_num_threads(2)
    try:
        assert on_cpu(tensors, k) == expected
    finally:
        torch.set_num_threads(threads)
    assert sum(int((t.abs() <= expected[0]).sum()) for t in tensors) == k + expected[2]


# ---------------------------------------------------------------- the warm search by bits


@pytest.fixture(scope="module")
def alone():
    """A process group with one member: the search believes that its weights are sharded, and uses its hint."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield [Shards(counts=(dist.group.WORLD,))]
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_warm_search_finds_what_a_cold_one_finds(alone, dtype):
    torch.manual_seed(0)
    weights = torch.randn(3000).to(dtype)
    weights[:100] = 0
    for k in (1, 50, 100, 101, 1500, 2999, 3000):
        expected = by_sorting([weights], k)
        for low in (None, expected[0], expected[0] * 1.01, 0.0, 1e-30, 1e30, math.inf):
            hint = Hint(low=None if low is None else torch.tensor(low))
            assert answer(select([weights], k, shards=alone, hint=hint)) == expected, (k, low)


@settings(max_examples=50)
@given(
    weights=st.lists(st.one_of(few_values, st.floats(-2, 2, width=32)), min_size=1, max_size=60),
    share=st.floats(0, 1),
    low=st.floats(width=32),
)
def test_a_hint_never_changes_the_result_of_the_search_by_bits(alone, weights, share, low):
    tensors = [torch.tensor(weights)]
    k = 1 + int(share * (len(weights) - 1))
    found = select(tensors, k, shards=alone, hint=Hint(low=torch.tensor(low)))
    assert answer(found) == by_sorting(tensors, k)


def test_a_hint_from_weights_of_another_precision_changes_nothing(alone):
    hint = Hint()
    weights = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    assert answer(select([weights], 2, shards=alone, hint=hint)) == (2.0, 3.0, 0)
    assert answer(select([weights.float()], 2, shards=alone, hint=hint)) == (2.0, 3.0, 0)
    assert answer(select([weights.double()], 2, shards=alone, hint=hint)) == (2.0, 3.0, 0)


# ---------------------------------------------------------------- quota and threshold


@pytest.mark.parametrize(
    ("weights", "sparsity", "expected"),
    [
        (8, 0.5, Quota(4, 0.5)),
        (8, 0.75, Quota(6, 0.25)),
        (9, 0.5, Quota(5, 0.0)),
        (1, 0.9, Quota(1, 0.0)),
        (8, 0.0, Quota(0)),
        (0, 0.9, Quota(0)),
        (8, 1e-12, Quota(1, pytest.approx(7e-12))),
    ],
)
def test_the_quota_of_small_pools(weights, sparsity, expected):
    assert quota(weights, sparsity) == expected


@given(n=st.integers(1, 10**9), sparsity=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True))
def test_the_quota_never_takes_more_than_there_is(n, sparsity):
    found = quota(n, sparsity)
    assert 1 <= found.zeros <= n
    assert 0.0 <= found.fraction < 1.0


@every_search
@every_dtype
@settings(max_examples=40)
@given(
    weights=st.lists(st.floats(-1e3, 1e3, width=32, allow_subnormal=False), min_size=1, max_size=60),
    sparsity=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True),
)
def test_the_threshold_is_numpys_linear_quantile(search, dtype, weights, sparsity):
    tensor = torch.tensor(weights, dtype=torch.float64).to(dtype)
    asked = quota(len(weights), sparsity)
    low, high, surplus = search([tensor], asked.zeros)
    threshold = threshold_between(Selected(low, high, surplus), asked.fraction, dtype)
    expected = float(np.quantile(tensor.double().abs().numpy(), sparsity))
    if torch.tensor(expected, dtype=torch.float64).to(dtype).item() == high:
        expected = low  # rounded up it would zero one weight too many
    rounding = {torch.float64: 1e-12, torch.float32: 2e-7, torch.bfloat16: 2.0**-8}[dtype]
    assert threshold == pytest.approx(expected, rel=rounding, abs=1e-30)
    zeros = int((tensor.abs() <= threshold).sum())
    assert zeros == asked.zeros + surplus


@every_dtype
@given(
    weights=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=2),
    fraction=st.floats(0.0, 1.0, exclude_max=True),
)
def test_a_threshold_lies_at_or_above_low_and_below_high(dtype, weights, fraction):
    low, high = sorted(torch.tensor(weights).to(dtype).tolist())
    tensors = torch.tensor([low, high], dtype=torch.float64)
    for selected in (Selected(low, high, 0), Selected(tensors[0], tensors[1], torch.tensor(0))):
        threshold = float(threshold_between(selected, fraction, dtype))
        assert low <= threshold
        assert threshold < high or low == high == threshold


@pytest.mark.parametrize("high", [math.inf, math.nan])
def test_a_threshold_above_which_nothing_finite_lies_is_low(high):
    assert threshold_between(Selected(0.5, high, 0), 0.25, torch.float32) == 0.5
    as_tensors = Selected(torch.tensor(0.5), torch.tensor(high), torch.tensor(0))
    assert threshold_between(as_tensors, 0.25, torch.float32).item() == 0.5


def test_a_threshold_between_neighbouring_floats_is_the_lower_one():
    low = torch.tensor(0.3)
    high = torch.nextafter(low, torch.tensor(1.0))
    assert threshold_between(Selected(low.item(), high.item(), 0), 0.9, torch.float32) == low.item()
    assert threshold_between(Selected(low, high, torch.tensor(0)), 0.9, torch.float32) == low


# ---------------------------------------------------------------- the zero counts of the paper's networks

SPARSITIES = (0.80, 0.90, 0.95, 0.965, 0.98, 0.99)
ZEROS = {  # floor((n - 1) s) + 1: weights, and zeros at each of these sparsities
    "resnet20": (270_896, (216_717, 243_806, 257_351, 261_414, 265_478, 268_187)),
    "vgg11_st3": (371_648, (297_318, 334_483, 353_065, 358_640, 364_215, 367_931)),
    "wrn34x2": (1_862_576, (1_490_061, 1_676_318, 1_769_447, 1_797_385, 1_825_324, 1_843_950)),
    "resnet50": (25_502_912, (20_402_329, 22_952_620, 24_227_766, 24_610_310, 24_992_853, 25_247_882)),
    "mobilenet_v1": (4_209_088, (3_367_270, 3_788_179, 3_998_633, 4_061_769, 4_124_906, 4_166_997)),
}


@pytest.mark.parametrize("network", ZEROS)
def test_the_quotas_of_the_papers_networks(network):
    weights, zeros = ZEROS[network]
    assert tuple(quota(weights, sparsity).zeros for sparsity in SPARSITIES) == zeros


def random_weights(network, dtype):
    """Normal weights in the shapes of a network's layers."""
    torch.manual_seed(0)
    with torch.device("meta"):
        model = MODELS[network]()
    return [torch.randn(p.shape, dtype=dtype) for p in model.parameters() if p.dim() > 1]


@pytest.mark.parametrize("network", ["resnet20", "vgg11_st3"])
def test_exactly_as_many_weights_are_zeroed_as_published(network):
    """float64, where random numbers do not tie."""
    tensors, hint = random_weights(network, torch.float64), Hint()
    count, published = ZEROS[network]
    assert sum(t.numel() for t in tensors) == count
    for sparsity, zeros in zip(SPARSITIES, published, strict=True):
        asked = quota(count, sparsity)
        selected = select(tensors, asked.zeros, hint=hint)
        threshold = threshold_between(selected, asked.fraction, torch.float64)
        assert selected.surplus == 0
        assert sum(int((t.abs() <= threshold).sum()) for t in tensors) == zeros


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ties_can_only_add_zeros_and_the_surplus_says_how_many(dtype):
    tensors = random_weights("resnet20", dtype)
    for sparsity, published in zip(SPARSITIES, ZEROS["resnet20"][1], strict=True):
        asked = quota(270_896, sparsity)
        selected = select(tensors, asked.zeros)
        threshold = threshold_between(selected, asked.fraction, dtype)
        zeros = sum(int((t.abs() <= threshold).sum()) for t in tensors)
        assert zeros == published + selected.surplus
        assert selected.surplus >= 0


def test_twenty_five_million_weights_are_searched_in_a_moment():
    """torch.quantile refuses more than 16 million; a sort takes seconds."""
    torch.manual_seed(0)
    million = torch.rand(1_000_000) + 0.5  # the same numbers 26 times over, less 497,088
    last = million[:502_912]
    tensors = [*[million * 2.0**-i for i in range(25)], last * 2.0**-25]
    weights = sum(t.numel() for t in tensors)
    assert weights == ZEROS["resnet50"][0]
    asked, hint = quota(weights, 0.9), Hint()
    start = time.perf_counter()
    found = answer(select(tensors, asked.zeros, hint=hint))
    assert time.perf_counter() - start < 3.0

    # Below 2^-2 * 0.5 lie the layers 3 ... 25 but for their overlaps: count what the answer claims.
    at_most = sum(int((t <= found[0]).sum()) for t in tensors)
    below = sum(int((t < found[0]).sum()) for t in tensors)
    assert below < asked.zeros <= at_most == asked.zeros + found[2]
    above = min(t[t > found[0]].min().item() for t in tensors if bool((t > found[0]).any()))
    assert found[1] == (found[0] if found[2] else above)
    assert answer(select(tensors, asked.zeros, hint=hint)) == found  # the second time with a warm start


def test_every_rank_of_a_small_pool():
    torch.manual_seed(0)
    tensors = [torch.randn(3, 4), torch.randn(5).round(), torch.randn(2, 2, 2)]
    for k, search in itertools.product(range(1, 26), SEARCHES.values()):
        assert search(tensors, k) == by_sorting(tensors, k)


def test_more_threads_than_pieces_of_work_change_nothing():
    before = torch.get_num_threads()
    tensor = torch.randn(1 << 23, generator=torch.Generator().manual_seed(0))
    try:
        torch.set_num_threads(96)
        found = select([tensor], 5_000_000)
    finally:
        torch.set_num_threads(before)
    assert found.low == tensor.abs().kthvalue(5_000_000).values.item()


def test_a_thread_that_gives_a_bracket_up_spoils_it_for_all():
    """Every other piece of work holds nothing but ties in the bracket, so one of two threads meets only those."""
    generator = torch.Generator().manual_seed(0)
    pieces = [
        torch.full((cpu.CHUNK,), 0.5) if i % 2 else torch.randn(cpu.CHUNK, generator=generator) / 2
        for i in range(144)
    ]
    tensors = [torch.cat(pieces)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        k = int(0.3415 * tensors[0].numel())
        assert select(tensors, k, hint=Hint(low=0.5)).low == tensors[0].abs().kthvalue(k).values.item()
    finally:
        torch.set_num_threads(before)
