"""Lightning: a network for 8x8 digits, trained to 90 % zeros by one callback; the best epoch is tested."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import st3
from st3.data import DATASETS, Pictures
from st3.integrations.lightning import SparseTraining
from st3.models import MODELS

SPARSITY, EPOCHS, BATCH = 0.9, 30, 64


class Digits(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = MODELS["digits_cnn"]()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    test_step = validation_step

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def loader(pictures: Pictures, shuffle: bool = False) -> DataLoader:
    data = TensorDataset(*pictures.batch(torch.arange(len(pictures)), None))
    return DataLoader(data, BATCH, shuffle=shuffle)


def main() -> None:
    L.seed_everything(0)
    digits = DATASETS["digits"]()
    sparse = SparseTraining(sparsity=SPARSITY)  # the only new line
    best = ModelCheckpoint(monitor="accuracy", mode="max", save_last=True)
    trainer = L.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[sparse, best], gradient_clip_val=3.0)
    model = Digits()
    trainer.fit(model, loader(digits.train, shuffle=True), loader(digits.validation))
    trainer.test(model, loader(digits.test), ckpt_path="best")
    print(st3.report(model, torch.zeros(1, 1, 8, 8)))


if __name__ == "__main__":
    main()
