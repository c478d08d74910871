"""Every network keeps the contract, those of other packages too; a new one is tested as soon as it is registered."""

import pytest
from tests.models.contract import CONTRACT
from tests.scratch import import_scratch_module

from st3.models import MODELS

every_promise = pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__)


@every_promise
@pytest.mark.parametrize("name", [*MODELS])
def test_every_network(name, promise):
    promise(name)


TRANSFORMER = """
    import torch
    from torch import Tensor, nn

    from st3.models import MODELS


    @MODELS.register("tiny_transformer", shape=(1, 8, 8))
    def tiny_transformer(classes: int = 10, channels: int = 1) -> nn.Module:
        \"\"\"Build a transformer with biases, layer norms and a learned position for each of four 4x4 patches.\"\"\"
        return TinyTransformer(classes, channels)


    class TinyTransformer(nn.Module):
        def __init__(self, classes: int, channels: int) -> None:
            super().__init__()
            self.patches = nn.Conv2d(channels, 16, 4, stride=4)
            self.positions = nn.Parameter(torch.zeros(4, 16))
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.norm = nn.LayerNorm(16)
            self.head = nn.Linear(16, classes)

        def forward(self, pictures: Tensor) -> Tensor:
            x = self.patches(pictures).flatten(2).mT + self.positions
            return self.head(self.norm(self.layer(x)).mean(dim=1))
"""


@every_promise
def test_a_network_with_biases_and_layer_norms_in_another_package(promise, tmp_path, monkeypatch):
    import_scratch_module(TRANSFORMER, MODELS, tmp_path, monkeypatch)
    promise("tiny_transformer")


@pytest.mark.parametrize(
    ("right", "wrong", "broken"),
    [
        ("shape=(1, 8, 8)", "shape=(1, 8, 16)", "it_takes_its_usual_inputs_and_gives_one_score_per_class"),
        (
            "nn.Linear(16, classes)",
            "nn.Linear(16, 10)",
            "it_honours_the_number_of_classes_and_the_size_of_inputs",
        ),
        (
            "torch.zeros(4, 16)",
            "torch.full((4, 16), __import__('random').SystemRandom().random())",
            "the_seed_determines_its_weights",
        ),
        ("self.norm(self.layer(x))", "self.layer(x)", "every_parameter_gets_a_gradient"),
        (".mean(dim=1))", ".mean(dim=1) - x.mean())", "in_evaluation_an_example_is_scored_by_itself"),
    ],
)
def test_a_network_that_breaks_a_promise_is_found(right, wrong, broken, tmp_path, monkeypatch):
    assert TRANSFORMER.count(right) == 1
    import_scratch_module(TRANSFORMER.replace(right, wrong), MODELS, tmp_path, monkeypatch)
    (promise,) = (promise for promise in CONTRACT if promise.__name__ == broken)
    with pytest.raises((AssertionError, RuntimeError)):
        promise("tiny_transformer")
