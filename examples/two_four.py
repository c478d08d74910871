"""2:4 sparsity for Linear and Conv2d by SR-STE and S-STE, and the plain checkpoint that other tools take."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import st3
from st3.data import DATASETS

EPOCHS, BATCH = 15, 32


def tensors(part: str) -> tuple[Tensor, Tensor]:
    pictures = getattr(DATASETS["digits"](), part)
    return pictures.batch(torch.arange(len(pictures)), None)


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def is_two_four(weight: Tensor) -> bool:
    """Whether at most 2 of 4 consecutive inputs are used: for every output and, in a convolution, kernel position."""
    groups = weight.movedim(1, -1).unflatten(-1, (-1, 4))
    return bool(((groups != 0).sum(-1) <= 2).all())


def main() -> None:
    (x, y), (test, labels) = tensors("train"), tensors("test")
    for method in ("sr_ste", "s_ste"):
        torch.manual_seed(0)
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        steps = EPOCHS * -(-len(x) // BATCH)
        # Its single input channel cannot form groups of four, so st3 leaves the first convolution dense.
        sparsifier = st3.sparsify(model, optimizer, method=method, total_steps=steps)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(x)).split(BATCH):
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
                optimizer.zero_grad()
        sparsifier.finalize()
        path = Path(f"two_four_{method}.pt")
        torch.save(model.state_dict(), path)  # ordinary keys, ordinary tensors, zeros in place

        stored = torch.load(path, weights_only=True)
        covered = [layer.name for layer in sparsifier.layers]
        assert all(is_two_four(stored[name]) for name in covered), "not 2:4"
        with torch.no_grad():
            accuracy = (model(test).argmax(1) == labels).float().mean()
        print(f"{method:7} {path}: 2:4 in {', '.join(covered)}; test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
