"""`st3 train --data folder`: pictures of your own, from the command line."""

import json

import pytest
from tests.data.tiny_files import picture_folders

pytest.importorskip("PIL")

WORDS = (
    "train",
    "--data",
    "folder",
    "--data-dir",
    "pets",
    "--model",
    "vgg11_st3",
    "--recipe",
    "digits",
    "--epochs",
    1,
)


def test_a_network_is_trained_on_pictures_in_class_folders_and_measured_again(st3, tmp_path):
    picture_folders(tmp_path / "pets", all=5)
    options = ("--set", "data.options.side=16", "--set", "data.options.test=0.2", "--sparsity", 0.5)
    answer = st3(*WORDS, *options, "--run", "run", "--quiet", "--json")
    assert answer.exit_code == 0, answer.output
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["data"]["options"] == {"side": 16, "test": 0.2}
    measured = json.loads(st3("eval", "run", "--json").stdout)
    assert (measured["data"], measured["pictures"]) == ("folder", 2)


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("sid=16", "data set 'folder' takes no argument 'sid'; did you mean 'side'? "),
        ("side=big", "data set 'folder', argument 'side': input should be a valid integer, got 'big'"),
        ("validation=10000", "validation is a share of the training pictures, from 0 to below 1, got 10000"),
    ],
)
def test_a_wrong_option_is_one_sentence(st3, tmp_path, option, fault):
    picture_folders(tmp_path / "pets", all=5)
    answer = st3(*WORDS, "--set", f"data.options.{option}", "--quiet")
    assert answer.exit_code == 1
    assert fault in answer.stderr
