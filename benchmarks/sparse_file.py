"""Sparse files: how near the bound they are, and what saving and loading costs.

sizes    ResNet-50 with masks of several kinds and sparsities (below), and the small network that `st3 train` trains on
         digits. `positions over entropy` compares the coded positions with log2 of the number of masks that have as
         many zeros in each layer: below 1 the code gains from unevenness that this bound does not know of.
times    saving and loading ResNet-50, over the same with plain safetensors (written whole and synced to disk, loaded
         into the model)

uniform  random, every layer as sparse as the whole
erk      random, layers as sparse as the Erdos-Renyi-Kernel rule says
global   the largest magnitudes of all layers: normal weights of He's variance, and a factor per filter, log-normal with
         sigma 0.5, in place of training
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from timing import ratio, record, take_turns
from torch import Tensor, nn

from st3 import load_sparse, save_sparse
from st3.allocations.erk import erk_densities
from st3.core.layers.find import find_layers
from st3.core.selection.select import quota, select
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.size import SparseSize
from st3.files.sparse import sparse_size
from st3.files.weights import read_weights, write_weights
from st3.models import MODELS

SPARSITIES = (0.8, 0.9, 0.95, 0.98)
AT_MOST = 1.15  # positions over their entropy


def masks(kind: str, weights: list[Tensor], sparsity: float) -> Iterator[Tensor]:
    """Yield the mask of each weight."""
    if kind == "global":
        scale = [torch.empty(len(w), *[1] * (w.dim() - 1)).log_normal_(0.0, 0.5) for w in weights]
        scores = [(w * s).abs() for w, s in zip(weights, scale, strict=True)]
        cut = select(scores, quota(sum(w.numel() for w in weights), sparsity).zeros).low
        yield from (score > cut for score in scores)
        return
    densities = [1 - sparsity] * len(weights)
    if kind == "erk":
        densities = erk_densities([w.shape for w in weights], sparsity)[1]
    for weight, density in zip(weights, densities, strict=True):
        yield torch.rand(weight.shape) < density


def resnet50(kind: str, sparsity: float) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS["resnet50"]()
    weights = [layer.parameter.detach() for layer in find_layers(model)]
    for weight, mask in zip(weights, masks(kind, weights, sparsity), strict=True):
        weight.copy_(torch.where(mask, weight, 0.0))
    return model


def row(case: str, size: SparseSize) -> dict[str, Any]:
    return {
        "case": case,
        "zeros": round(size.zeros / size.numbers, 4),
        "positions over entropy": round(size.over_bound, 4),
        "at most": AT_MOST,
        "file over bound": round(size.file_bytes / size.bound_bytes, 4),
        "times smaller than dense": round(size.ratio, 2),
        **size.to_dict(),
    }


def sizes(files: list[str]) -> Iterator[dict[str, Any]]:
    for kind in ("uniform", "erk", "global"):
        for sparsity in SPARSITIES:
            yield row(f"ResNet-50, {kind}, {sparsity}", sparse_size(resnet50(kind, sparsity)))
    for values in ("float16", "bfloat16"):
        yield row(f"ResNet-50, uniform, 0.9, {values}", sparse_size(resnet50("uniform", 0.9), values=values))
    for sparsity in (0.9, 0.98):
        with tempfile.TemporaryDirectory() as folder:
            train(compose(sparse={"sparsity": sparsity}, protocol="single"), folder)
            trained = read_weights(Path(folder) / "model.safetensors")[0]
            yield row(f"digits_cnn trained by st3, {sparsity}", sparse_size(trained))
    for given in files:
        name, _, path = given.partition("=")
        yield row(name, sparse_size(read_weights(Path(path))[0]))


def times(sparsity: float, rounds: int) -> dict[str, Any]:
    model = resnet50("uniform", sparsity)
    weights = model.state_dict()
    other = MODELS["resnet50"]()
    with tempfile.TemporaryDirectory() as folder:
        sparse, plain = Path(folder) / "sparse.safetensors", Path(folder) / "plain.safetensors"
        seconds = take_turns(
            {
                "save sparse": lambda: save_sparse(model, sparse),
                "save plain": lambda: write_weights(plain, weights, {}),
                "load sparse": lambda: load_sparse(sparse, other),
                "load plain": lambda: other.load_state_dict(load_file(plain)),
            },
            rounds,
        )
        loaded = load_sparse(sparse, other).state_dict()
        assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.items())
    return {
        "case": f"times, ResNet-50, uniform, {sparsity}",
        "save over plain": ratio(seconds, "save sparse", "save plain"),
        "load over plain": ratio(seconds, "load sparse", "load plain"),
        "seconds": {name: round(min(taken), 3) for name, taken in seconds.items()},
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--part", choices=["all", "sizes", "times"], default="all")
    parser.add_argument(
        "--file", action="append", default=[], metavar="NAME=PATH", help="a further model's size"
    )
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows: list[dict[str, Any]] = []
    if given.part in ("all", "sizes"):
        rows += sizes(given.file)
    if given.part in ("all", "times"):
        rows += [times(sparsity, given.rounds) for sparsity in (0.8, 0.9, 0.98)]
    record(given.output, {"rounds": given.rounds}, rows)


if __name__ == "__main__":
    main()
