"""Metrics for TensorBoard: what is written, and into which folder."""

import sys

import pytest

from st3.training.tensorboard import TensorBoard

STEP = {"step": 8, "epoch": 0.5, "loss": 1.5, "rate": 0.1, "sparsity_asked": 0.4, "threshold": None}
EPOCH = {
    "epoch": 1,
    "step": 16,
    "train": {"loss": 1.0, "accuracy": 0.5},
    "validation": {"loss": 0.9, "accuracy": 0.6},
    "sparsity": 0.45,
    "sparsity_asked": 0.45,
    "switches": {"revived": 3, "zeroed": 9},
    "gradient_norm": None,
}


class Writer:
    """Remembers what tensorboardX would write."""

    made: list["Writer"]

    def __init__(self, folder, **options):
        self.folder, self.options, self.scalars, self.is_closed = folder, options, {}, False
        Writer.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars[name, step] = value

    def close(self):
        self.is_closed = True


@pytest.fixture
def made(monkeypatch):
    Writer.made = []
    monkeypatch.setattr("tensorboardX.SummaryWriter", Writer)
    return Writer.made


def test_metrics_are_written_by_step_without_those_that_are_missing(tmp_path, made):
    with TensorBoard(tmp_path) as board:
        board.on_begin(False, 0, 0)
        board.on_step(STEP)
        board.on_epoch(EPOCH, {"fc.weight": {"weights": 100, "zeros": 45}})
    (writer,) = made
    assert writer.folder == str(tmp_path / "sparse")
    assert writer.is_closed
    assert writer.scalars == {
        ("loss/step", 8): 1.5,
        ("rate", 8): 0.1,
        ("sparsity_asked", 8): 0.4,
        ("loss/train", 16): 1.0,
        ("accuracy/train", 16): 0.5,
        ("loss/validation", 16): 0.9,
        ("accuracy/validation", 16): 0.6,
        ("sparsity", 16): 0.45,
        ("switches/revived", 16): 3,
        ("switches/zeroed", 16): 9,
        ("layers/fc.weight", 16): 0.45,
    }


def test_the_dense_twin_has_its_own_folder(tmp_path, made):
    with TensorBoard(tmp_path) as board:
        board.on_part("dense twin", "dense", 0, 2, None)
        board.on_begin(True, 0, 0)
        board.on_step(STEP | {"sparsity_asked": None})
        board.on_part("sparse", "", 1, 2, 0.9)
        board.on_begin(False, 0, 0)
        board.on_step(STEP)
    assert [writer.folder for writer in made] == [str(tmp_path / "dense"), str(tmp_path / "sparse")]


def test_what_was_written_after_the_checkpoint_is_hidden(tmp_path, made):
    with TensorBoard(tmp_path) as board:
        board.on_begin(False, 7, 0)
        board.on_step(STEP)
    assert made[0].options == {"purge_step": 8}


def test_without_metrics_no_folder_is_made(tmp_path):
    with TensorBoard(tmp_path / "board"):
        pass
    assert not (tmp_path / "board").exists()


def test_without_tensorboardx_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError) as caught:
        TensorBoard(tmp_path)
    assert str(caught.value) == "TensorBoard needs tensorboardX: pip install 'st3[tensorboard]'"
