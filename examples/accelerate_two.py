"""Accelerate in two processes on this machine: handwritten digits, 90 % zeros."""

import os

import torch
from accelerate import Accelerator
from torch.distributed.run import main as torchrun
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import st3
from st3.data import DATASETS
from st3.integrations.accelerate import total_steps
from st3.models import MODELS

EPOCHS = 20


def train() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    splits = DATASETS["digits"](augment=False)
    parts = {name: getattr(splits, name) for name in ("train", "test")}
    data = {name: TensorDataset(*part.batch(torch.arange(len(part)), None)) for name, part in parts.items()}
    model = MODELS["digits_cnn"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(data["train"], batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = total_steps(accelerator, loader, EPOCHS)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=steps)

    for epoch in range(EPOCHS):
        for pictures, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(pictures), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch + 1:2d}  loss {loss.item():.3f}  sparsity {sparsifier.asked():.3f}")

    sparsifier.finalize()  # in every process; counts the zeros, raises if the target was missed
    report = sparsifier.report()
    pictures, labels = data["test"].tensors
    model.eval()
    with torch.no_grad():
        right = (model(pictures).argmax(1) == labels).float().mean().item()
    accelerator.print(f"{report}\n\ntest accuracy {right:.1%}, {accelerator.num_processes} processes")


if __name__ == "__main__":
    if "LOCAL_RANK" in os.environ:
        train()
    else:
        torchrun(["--standalone", "--nproc-per-node=2", __file__])
