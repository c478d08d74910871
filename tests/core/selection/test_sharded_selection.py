"""The k-th magnitude of weights that are spread over processes: exact, by counts, without gathering a weight."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.distributed.sharded import Collectives
from tests.processes import on_ranks
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from st3.core.layers.shards import UNSHARDED, Shards
from st3.core.selection import bits
from st3.core.selection.select import Hint, Selected, select

COLD = 3 + 1  # histograms of 11, 10 and 10 bits, and the smallest score above
WARM = 2 + 1  # a window of 21 bits around the last answer, and the smallest score above


def everywhere() -> Shards:
    return Shards(counts=(dist.group.WORLD,))


def part(whole: Tensor) -> Tensor:
    """Return this rank's rows as FSDP2 cuts them: equal but for the last ranks, which may get nothing."""
    chunks = whole.chunk(dist.get_world_size())
    return chunks[dist.get_rank()] if dist.get_rank() < len(chunks) else whole[:0]


def search(wholes: Sequence[Tensor], k: int, *, hint: Hint | None = None, factors: Any = None) -> Selected:
    return select(
        [part(w) for w in wholes], k, factors=factors, shards=[everywhere()] * len(wholes), hint=hint
    )


def numbers(found: Selected) -> tuple[float, float, int]:
    return float(found.low), float(found.high), int(found.surplus)


def sorted_scores(wholes: Sequence[Tensor], factors: Sequence[float] | None = None) -> np.ndarray:
    parts = []
    for i, whole in enumerate(wholes):
        scores = whole.double() if whole.dtype == torch.float64 else whole.float()
        scores = scores.abs().flatten().numpy()
        parts.append(scores if factors is None else scores * scores.dtype.type(factors[i]))
    return np.sort(np.concatenate(parts))


def by_sorting(
    wholes: Sequence[Tensor], k: int, factors: Sequence[float] | None = None
) -> tuple[float, float, int]:
    scores = sorted_scores(wholes, factors)
    low = scores[k - 1]
    high = scores[k] if k < scores.size else np.inf
    return float(low), float(high), int(np.count_nonzero(scores == low) - np.count_nonzero(scores[:k] == low))


def pools(dtype: torch.dtype = torch.float32) -> Iterator[list[Tensor]]:
    """Yield pools of layers whose rows no number of ranks divides; some ranks hold nothing of some layers."""
    generator = torch.Generator().manual_seed(3)
    for shapes in ([(10, 7)], [(3, 5, 3, 3), (10, 4), (1, 6)], [(13,), (64, 64), (2, 9)]):
        for spread in (1e-3, 1e4):
            yield [spread * torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@on_ranks(2, 4)
def test_every_rank_of_a_handful_of_weights_is_found_with_its_ties() -> None:
    wholes = [
        torch.tensor([0.5, -0.25, 0.25]),
        torch.tensor([0.0, 1.0, -0.25, 2.0, 0.5]),
        torch.tensor([-0.0]),
    ]
    found = [numbers(search(wholes, k)) for k in range(1, 10)]
    assert found == [
        (0.0, 0.0, 1),
        (0.0, 0.25, 0),
        (0.25, 0.25, 2),
        (0.25, 0.25, 1),
        (0.25, 0.5, 0),
        (0.5, 0.5, 1),
        (0.5, 1.0, 0),
        (1.0, 2.0, 0),
        (2.0, np.inf, 0),
    ]


@pytest.mark.parametrize(
    ("ranks", "dtype"), [(4, torch.float32), (2, torch.float64), (2, torch.bfloat16)], ids=str
)
@on_ranks()
def test_the_search_over_uneven_shards_agrees_with_sorting(dtype: torch.dtype) -> None:
    for wholes in pools(dtype):
        count = sum(whole.numel() for whole in wholes)
        for k in sorted({1, count // 2, int(0.95 * count), count}):
            assert numbers(search(wholes, k)) == by_sorting(wholes, k), (k, dtype)


@pytest.mark.parametrize(("ranks", "dtype"), [(4, torch.float32), (2, torch.float64)], ids=str)
@on_ranks()
def test_a_factor_per_layer_is_multiplied_with_the_magnitudes(dtype: torch.dtype) -> None:
    for wholes in pools(dtype):
        factors = [1.0 + 0.7 * i for i in range(len(wholes))]
        count = sum(whole.numel() for whole in wholes)
        for k in (count // 3, int(0.9 * count)):
            expected = by_sorting(wholes, k, factors)
            assert numbers(search(wholes, k, factors=factors)) == expected
            assert numbers(select(wholes, k, factors=factors)) == expected, (
                "a single process finds another one"
            )


@on_ranks(4)
def test_a_search_that_follows_drifting_weights_is_exact_at_every_step() -> None:
    generator = torch.Generator().manual_seed(1)
    wholes = [torch.randn(shape, generator=generator) for shape in ((10, 30), (3, 5, 3, 3), (33,))]
    count = sum(whole.numel() for whole in wholes)
    hint = Hint()
    for step in range(16):
        jump = 100.0 if step == 8 else 1.0  # somebody loads other weights: the window misses
        wholes = [jump * (w + 0.02 * torch.randn(w.shape, generator=generator)) for w in wholes]
        k = max(1, int(count * min(0.97, step / 12)))
        assert numbers(search(wholes, k, hint=hint)) == by_sorting(wholes, k), step


@on_ranks(2)
def test_a_wrong_hint_never_changes_the_result() -> None:
    wholes = [torch.randn(10, 30), torch.zeros(5), torch.tensor([1e-40, 3e38])]
    for low in (0.0, 1e-45, 0.3, 3e38, torch.inf, torch.nan):
        for k in (1, 6, 150, 307):
            hint = Hint(low=torch.tensor(low))
            assert numbers(search(wholes, k, hint=hint)) == by_sorting(wholes, k), (low, k)
            assert numbers(search(wholes, k, hint=hint)) == by_sorting(wholes, k), (low, k, "the second time")


@on_ranks(2)
def test_a_hint_from_one_process_serves_a_sharded_search_and_the_other_way_round() -> None:
    wholes, hint = [torch.randn(10, 30)], Hint()
    alone = numbers(select(wholes, 150, hint=hint))
    assert numbers(search(wholes, 150, hint=hint)) == alone
    assert numbers(select(wholes, 150, hint=hint)) == alone


@on_ranks(2, 4)
def test_counts_are_reduced_four_times_cold_and_three_times_warm_and_nothing_is_gathered() -> None:
    wholes, hint = [torch.randn(200, 100), torch.randn(10, 7)], Hint()

    def collectives_for(k: int) -> list[str]:
        with Collectives() as seen:
            search(wholes, k, hint=hint)
        assert seen.largest <= 2**11 + 2, "more than a histogram left this process"
        return seen.names

    assert collectives_for(10_000) == ["allreduce_"] * COLD
    assert collectives_for(10_500) == ["allreduce_"] * WARM
    assert collectives_for(1) == ["allreduce_"] * (1 + COLD), "the window missed: once more, from the start"


@on_ranks(2, 4)
def test_weights_that_every_process_holds_whole_count_once() -> None:
    sharded, whole = torch.randn(10, 7), torch.randn(30)
    for k in (1, 50, 99, 100):
        found = select([part(sharded), whole], k, shards=[everywhere(), UNSHARDED])
        assert numbers(found) == by_sorting([sharded, whole], k)


@on_ranks(4)
def test_weights_cut_along_two_axes_are_counted_over_both() -> None:
    rows, columns = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns")).get_all_groups()
    whole = torch.randn(5, 7)
    mine = whole.chunk(2)[dist.get_rank(rows)].chunk(2, dim=1)[dist.get_rank(columns)]
    for k in (1, 17, 35):
        found = select([mine], k, shards=[Shards(counts=(rows, columns))])
        assert numbers(found) == by_sorting([whole], k)


@on_ranks(4)
def test_replicas_of_a_shard_count_once() -> None:
    _, shards = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")).get_all_groups()
    whole = torch.randn(5, 7)
    mine = whole.chunk(2)[dist.get_rank(shards)]
    for k in (1, 17, 35):
        found = select([mine], k, shards=[Shards(counts=(shards,))])
        assert numbers(found) == by_sorting([whole], k)


@on_ranks(2)
def test_a_transposed_shard_is_searched_like_any_other() -> None:
    whole = torch.randn(10, 6, 3, 3)
    mine = part(whole).to(memory_format=torch.channels_last)
    found = select([mine], 500, shards=[everywhere()])
    assert numbers(found) == by_sorting([whole], 500)


@on_ranks(2)
def test_working_through_a_weight_in_pieces_changes_nothing() -> None:
    whole = torch.randn(10, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bits, "CHUNK", 8)
        for k in (1, 35, 70):
            assert numbers(search([whole], k)) == by_sorting([whole], k)
