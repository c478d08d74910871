"""The temporary memory that docs/scale.md speaks of, in bytes per weight, as torch's profiler sees allocations."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import st3
from st3.core.counting import count_all, require_numbers
from st3.core.families import raw
from st3.core.layers.shards import Shards
from st3.core.selection import bits
from st3.core.selection.select import Hint

WEIGHTS = 1 << 20


def bytes_per_weight(run: Callable[[], Any]) -> float:
    """Return the most bytes that `run` held at once, per weight."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / WEIGHTS


def test_a_search_takes_25_bytes_per_weight_of_a_piece():
    weights, hint, whole = torch.randn(WEIGHTS), Hint(), [Shards()]
    bits.select([weights], WEIGHTS // 2, None, whole, hint)
    scores = bits._Scores([weights], None, whole)
    assert bytes_per_weight(lambda: bits._warm(scores, WEIGHTS // 2, hint)) == pytest.approx(25, abs=0.1)
    assert bytes_per_weight(lambda: bits._cold(scores, WEIGHTS // 2)) < 25


def test_writing_a_whole_layer_takes_4_bytes_per_weight_looking_at_it_9(monkeypatch):
    monkeypatch.setattr(raw, "_pieces", lambda sparse, layer: [(0, len(sparse))])  # as on other devices
    model = nn.Linear(1024, 1024, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=9, ramp="constant")
    layers, family = list(sparsifier.layers), sparsifier._conductor.family
    weight = layers[0].weight
    assert bytes_per_weight(lambda: family._write_layer(layers[0], weight)) == pytest.approx(4, abs=0.1)
    assert bytes_per_weight(lambda: count_all(layers)) == pytest.approx(9, abs=0.1)
    assert bytes_per_weight(lambda: require_numbers(layers, [weight], "now")) < 0.1
