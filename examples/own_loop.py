"""An ordinary training loop, made sparse by one call: noisy 8x8 pictures of digits, dense against 90 % zeros."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import st3
from st3.models import MODELS

SPARSITY, EPOCHS, BATCH = 0.9, 12, 64

# Ten digits, five rows of three pixels each.
ROWS = [
    "111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
    "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111",
]  # fmt: skip


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return digits at random places, with noise strong enough that a network has something to learn."""
    generator = torch.Generator().manual_seed(seed)
    glyphs = torch.tensor([[float(bit) for bit in row] for row in ROWS]).view(10, 5, 3)
    labels = torch.randint(0, 10, (count,), generator=generator)
    x = torch.zeros(count, 1, 8, 8)
    tops, lefts = (torch.randint(0, most, (count,), generator=generator) for most in (4, 6))
    for i, (label, top, left) in enumerate(zip(labels.tolist(), tops.tolist(), lefts.tolist(), strict=True)):
        x[i, 0, top : top + 5, left : left + 3] = glyphs[label]
    return x + 0.35 * torch.randn(x.shape, generator=generator), labels


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def train(sparsity: float, data: tuple[Tensor, Tensor], seed: int = 0) -> tuple[nn.Module, st3.Sparsifier]:
    x, y = data
    torch.manual_seed(seed)
    model = MODELS["digits_cnn"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    steps = len(x) // BATCH * EPOCHS
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sparsifier = st3.sparsify(model, optimizer, sparsity=sparsity, total_steps=steps)  # the only new line
    for epoch in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        print(f"  epoch {epoch + 1:2d}  loss {loss.item():.3f}  sparsity asked {sparsifier.asked():.3f}")
    sparsifier.finalize()  # counts the zeros, raises if the target was missed
    return model, sparsifier


def main() -> None:
    data, test = pictures(6000, seed=1), pictures(4000, seed=2)
    print("dense")
    dense, _ = train(0.0, data)
    print(f"sparse, target {SPARSITY}")
    sparse, sparsifier = train(SPARSITY, data)
    print()
    print(sparsifier.report(test[0][:1]))
    print(f"\ntest accuracy on {len(test[0])} pictures: dense {accuracy(dense, *test):.1%}", end=", ")
    print(f"{SPARSITY:.0%} zeros {accuracy(sparse, *test):.1%} ({EPOCHS} epochs, one seed each)")
    print("next: put the one line into your own loop; README.md shows how")


if __name__ == "__main__":
    main()
