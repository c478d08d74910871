"""A file of the engine of a network with a decoder: it reads one character per call, and wrong answers are refused."""

import pytest
import torch

import st3
from st3.engine.native import is_built
from st3.experiments.engine_file import export_engine
from st3.files.inputs import ExportError
from st3.models import MODELS

pytestmark = pytest.mark.skipif(not is_built(), reason="the kernels are not built")

TEXT = torch.tensor([[3, 1, 4, 1, 5, 0, 2, 6]])


@pytest.fixture
def network():
    torch.manual_seed(0)
    return MODELS["gpt"](vocabulary=7, context=8, layers=2, heads=2, width=16).eval()


@torch.no_grad()
def test_the_file_of_a_network_with_a_decoder_reads_one_character_per_call(network, tmp_path):
    made = export_engine(network, TEXT, tmp_path / "model.st3run", threads=1)
    assert "the next character and its position, up to 8 in all" in made.kind
    loaded = st3.engine.load(made.path)
    assert [(each.shape, each.dtype) for each in loaded.inputs] == [
        ((1, 1), torch.int64),
        ((1,), torch.int64),
    ]
    text = torch.tensor([[6, 2, 0, 5, 1]])
    scores = [loaded(text[:, n : n + 1], torch.tensor([n])) for n in range(5)]
    torch.testing.assert_close(torch.cat(scores, 1), network(text), rtol=1e-4, atol=1e-5)


def test_a_decoder_that_answers_otherwise_than_its_network_gets_no_file(network, tmp_path):
    decoder = network.decoder()
    decoder.model = MODELS["gpt"](vocabulary=7, context=8, layers=2, heads=2, width=16)  # other weights
    network.decoder = lambda: decoder
    with pytest.raises(ExportError, match="the file gives other answers than the model"):
        export_engine(network, TEXT, tmp_path / "model.st3run", threads=1)
    assert not [*tmp_path.iterdir()]


def test_a_decoder_in_int8_is_refused(network, tmp_path):
    message = "--int8: a decoder changes its own buffers, so it cannot be computed in int8"
    with pytest.raises(ValueError, match=message):
        export_engine(network, TEXT, tmp_path / "model.st3run", threads=1, typical=[TEXT])


def test_several_texts_at_once_are_refused(network, tmp_path):
    with pytest.raises(
        ValueError, match="--batch 2: the file of a decoder reads one text; leave out --batch"
    ):
        export_engine(network, TEXT.repeat(2, 1), tmp_path / "model.st3run", threads=1)
