"""Options of other programs are answered with what to give instead."""

import pytest

from st3.cli.hints import INSTEAD
from st3.experiments.spec import compose
from st3.training.sections import parse_changes


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--lr", "--set optimizer.lr=0.05"),
        ("--learning-rate", "--set optimizer.lr=0.05"),
        ("--batch-size", "--set batch_size=64"),
        ("--weight-decay", "--set optimizer.weight_decay=1e-4"),
        ("--momentum", "--set optimizer.momentum=VALUE"),
        ("--label-smoothing", "--set label_smoothing=VALUE"),
        ("--ramp", "--set sparse.ramp=linear"),
        ("--exclude", "--set sparse.exclude=VALUE"),
        ("--dataset", "--data NAME"),
        ("--gpu", "--device cuda"),
    ],
)
def test_the_error_says_what_to_give_instead(st3, option, instead):
    answer = st3("train", option, "3")
    assert answer.exit_code == 2
    assert f"No such option: {option}; give {instead} instead." in answer.stderr
    assert "Possible options" not in answer.stderr


def test_a_misspelt_option_is_answered_with_the_closest_one(st3):
    answer = st3("train", "--sparsty", "0.9")
    assert answer.exit_code == 2
    assert "--sparsity" in answer.stderr
    assert "instead" not in answer.stderr


def test_other_commands_have_no_settings_to_change(st3):
    answer = st3("plot", "--lr", "3")
    assert answer.exit_code == 2
    assert "No such option: --lr" in answer.stderr
    assert "--set" not in answer.stderr


def test_the_options_and_settings_that_it_names_exist(st3):
    shown = st3("train", "--help").stdout
    for option, instead in INSTEAD.items():
        assert f" {option} " not in shown
        first, _, value = instead.partition(" ")
        if first == "--set":
            compose(changes=parse_changes([value]))
        elif first != "torchrun":
            assert f" {first} " in shown
