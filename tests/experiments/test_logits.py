"""A network may return an object with `logits`, as those of Hugging Face do."""

import pytest
import torch
from torch import nn

from st3.experiments.evaluation import evaluate_stored
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.training.sections import SettingsError


def hugging_face_network(num_classes=10, in_channels=1):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = ViTConfig(image_size=8, patch_size=4, num_channels=in_channels, num_labels=num_classes, **sizes)
    return ViTForImageClassification(config)


class WithoutLogits(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return {"scores": self.last(x.flatten(1))}


def spec(function):
    return compose(
        model={"name": f"tests.experiments.test_logits:{function}"},
        sparse={"sparsity": 0.5},
        epochs=1,
        protocol="single",
        machine={"device": "cpu", "threads": 1},
    )


def test_it_is_trained_and_evaluated(tmp_path):
    summary = train(spec("hugging_face_network"), tmp_path / "run")
    assert summary["sparsity"] == pytest.approx(0.5, abs=1e-3)
    assert evaluate_stored(tmp_path / "run")["accuracy"] == summary["test"]["accuracy"]
    torch.manual_seed(0)
    network = hugging_face_network()
    assert train(spec("hugging_face_network"), tmp_path / "given", model=network)["test"] == summary["test"]


def test_an_output_without_scores_is_refused_before_the_first_batch(tmp_path):
    with pytest.raises(
        SettingsError, match=r"WithoutLogits' returns dict for 2 pictures, but 'digits' has 10 classes"
    ):
        train(spec("WithoutLogits"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
