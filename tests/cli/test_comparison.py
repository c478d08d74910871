"""The end of a run on the terminal: tables and closing words."""

from pathlib import Path

import pytest

from st3.cli.comparison import closing_words, comparison_table, part_table

NOT_FASTER = "Zeros do not make a dense runtime faster: it multiplies by them as well. st3.engine skips them."
SPARSE = {
    "test": {"loss": 0.1, "accuracy": 0.9575},
    "validation": {"loss": 0.1, "accuracy": 0.98},
    "sparsity": 0.9,
    "target": 0.9,
    "parameters": 24032,
    "active_parameters": 2605,
    "dense_macs": 829920,
    "sparse_macs": 84572,
    "model": "model.safetensors",
    "model_bytes": 99016,
    "sparse_model": "model.sparse.safetensors",
    "sparse_model_bytes": 16606,
    "pictures": {"train": 1197, "validation": 200, "test": 400},
    "report": {"zeros": 21427, "weights": 23808},
}
DENSE = SPARSE | {
    "sparsity": 0.0,
    "target": None,
    "active_parameters": 24032,
    "sparse_macs": None,
    "sparse_model": None,
    "sparse_model_bytes": None,
    "report": {"zeros": 0, "weights": 23808},
}


def test_dense_and_sparse_are_shown_side_by_side():
    assert comparison_table(SPARSE, DENSE).splitlines() == [
        "                        dense   sparse",
        "test accuracy         95.75 %  95.75 %",
        "validation accuracy   98.00 %  98.00 %",
        "sparsity               0.00 %  90.00 %",
        "parameters             24,032   24,032",
        "active parameters      24,032    2,605",
        "MACs (zeros skipped)        -   84,572",
        "file                  99.0 kB  99.0 kB",
        "sparse file                 -  16.6 kB",
    ]


def test_a_single_run_has_one_column():
    assert comparison_table(SPARSE).splitlines()[0].split() == ["sparse"]
    assert comparison_table(DENSE).splitlines()[0].split() == ["dense"]


def test_several_parts_have_a_row_each():
    summaries = {"cycle-00": DENSE, "cycle-01": SPARSE}
    assert part_table("cycle", summaries).splitlines() == [
        "cycle  sparsity  test accuracy  validation accuracy  active parameters  MACs (zeros skipped)    folder",
        "0        0.00 %        95.75 %              98.00 %             24,032                     -  cycle-00",
        "1       90.00 %        95.75 %              98.00 %              2,605                84,572  cycle-01",
    ]


def test_the_closing_words_explain_zeros_and_end_with_the_sparsity():
    words = closing_words(SPARSE, Path("runs/a"))
    assert "The plain file is as large as that of a dense model" in words
    assert "model.sparse.safetensors holds the same model, bit for bit, and is 6.0 times smaller." in words
    assert NOT_FASTER in words
    for command in ("st3 info runs/a", "st3 eval runs/a", "st3 bench runs/a", "st3 train --data cifar10"):
        assert command in words
    assert words.splitlines()[-1] == "sparsity 90.00 % (target 90.00 %): 21,427 of 23,808 weights are zero"


def test_a_network_trained_on_text_is_asked_to_write():
    scores = {part: {"loss": 1.4, "bits": 2.0} for part in ("test", "validation")}
    words = closing_words(SPARSE | scores, Path("runs/my book"))
    assert """  st3 generate 'runs/my book' --prompt "The"  let it write\n""" in words
    assert "cifar10" not in words


def test_no_smaller_file_is_claimed_if_there_is_none():
    for summary in (SPARSE | {"sparse_model_bytes": 98_900}, SPARSE | {"sparse_model_bytes": None}):
        words = closing_words(summary, Path("runs/a"))
        assert "times smaller" not in words
        assert NOT_FASTER in words


def test_nothing_is_claimed_for_a_dense_model():
    words = closing_words(DENSE, Path("runs/a"))
    assert "dense runtime" not in words
    assert "st3 bench" not in words
    assert words.endswith("sparsity 0.00 % (dense): 0 of 23,808 weights are zero")


@pytest.mark.parametrize(
    ("accuracy", "sentence"),
    [
        (0.97, "The sparse model is 1.25 points worse than its dense twin."),
        (0.955, "The sparse model is 0.25 points better than its dense twin."),
        (0.9575, "The sparse model is as good as its dense twin."),
    ],
)
def test_the_difference_to_the_dense_twin_is_shown_beside_the_weight_of_one_picture(accuracy, sentence):
    dense = DENSE | {"test": {"loss": 0.1, "accuracy": accuracy}}
    lines = closing_words(SPARSE, Path("runs/a"), dense).splitlines()
    assert lines[:2] == ["One seed, 400 test pictures: each of them is 0.25 points of accuracy.", sentence]
    assert "dense twin" not in closing_words(SPARSE, Path("runs/a"))


def test_no_gain_is_claimed_for_a_method_that_left_no_zeros():
    learned = {**SPARSE, "method": "str", "target": None, "sparsity": 0.0}
    learned |= {"report": {"zeros": 0, "weights": 23808}, "sparse_model": "model.sparse.safetensors"}
    words = closing_words(learned, Path("runs/a"))
    assert "No weight is zero: how many are depends on the settings of 'str', see its page." in words
    for claim in ("without its zeros", "stores the zeros", "dense runtime", "st3 bench"):
        assert claim not in words
    assert words.endswith("sparsity 0.00 % (learned, without a target): 0 of 23,808 weights are zero")
