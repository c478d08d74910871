"""What `st3 train` without options promises: 90 % of the weights are zero, and the network is as accurate."""

import json

import pytest

from st3.experiments.run import train
from st3.experiments.spec import compose


@pytest.mark.slow
def test_a_network_with_90_percent_zeros_is_within_a_point_of_the_dense_one(tmp_path):
    """`st3 train` without options (30 epochs): the mean of three seeds on the 400 test pictures."""
    accuracies = {"dense": [], "sparse": []}
    for seed in range(3):
        run = tmp_path / str(seed)
        sparse = train(compose(seeds={"init": seed, "data": seed}), run)
        dense = json.loads((run / "dense" / "summary.json").read_text())
        assert sparse["sparsity"] == pytest.approx(0.9, abs=1e-4)
        accuracies["sparse"].append(sparse["test"]["accuracy"])
        accuracies["dense"].append(dense["test"]["accuracy"])
    means = {name: sum(found) / 3 for name, found in accuracies.items()}
    assert means["dense"] > 0.98, accuracies
    assert means["sparse"] >= means["dense"] - 0.01, accuracies
