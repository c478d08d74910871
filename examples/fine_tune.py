"""Fine-tune a sparse model on another task: trained on the digits 0-4, tuned on 5-9, with every zero in its place."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import st3
from st3.data import DATASETS
from st3.models import MODELS

SPARSITY, EPOCHS, TUNING_EPOCHS, BATCH = 0.9, 40, 20, 32


def task(first: int, part: str) -> tuple[Tensor, Tensor]:
    """Return the pictures of five digits, and their classes 0 to 4."""
    pictures = getattr(DATASETS["digits"](), part)
    x, y = pictures.batch(torch.arange(len(pictures)), None)
    chosen = (y >= first) & (y < first + 5)
    return x[chosen], y[chosen] - first


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, data: tuple[Tensor, Tensor], epochs: int) -> None:
    for _ in range(epochs):
        for batch in torch.randperm(len(data[0])).split(BATCH):
            F.cross_entropy(model(data[0][batch]), data[1][batch]).backward()
            optimizer.step()
            optimizer.zero_grad()


def describe(model: nn.Module, test: tuple[Tensor, Tensor]) -> str:
    model.eval()
    with torch.no_grad():
        accuracy = (model(test[0]).argmax(1) == test[1]).float().mean()
    return f"accuracy {accuracy:.1%}, zeros {st3.report(model).sparsity:.2%}"


def main() -> None:
    torch.manual_seed(0)
    model, data = MODELS["digits_cnn"](classes=5), task(0, "train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = EPOCHS * -(-len(data[0]) // BATCH)
    sparsifier = st3.sparsify(model, optimizer, sparsity=SPARSITY, total_steps=steps)
    fit(model, optimizer, data, EPOCHS)
    trained = sparsifier.finalize().state_dict()  # a plain checkpoint
    print("digits 0-4, trained sparse:          ", describe(model, task(0, "test")))

    for name, keeps in (("tuned with st3.keep_mask:", True), ("tuned without it:", False)):
        model = MODELS["digits_cnn"](classes=5)
        model.load_state_dict(trained)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        keeper = st3.keep_mask(model, optimizer) if keeps else None  # the only new line
        fit(model, optimizer, task(5, "train"), TUNING_EPOCHS)
        if keeper is not None:
            keeper.finalize()  # counts the zeros
        print(f"digits 5-9, {name:25}", describe(model, task(5, "test")))


if __name__ == "__main__":
    main()
