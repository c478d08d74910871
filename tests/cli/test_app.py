"""The help of every command."""

import pytest

COMMANDS = ("train", "eval", "report", "plot", "info", "list")


def test_the_help_lists_all_commands(st3):
    shown = st3("--help").stdout
    assert [name for name in COMMANDS if f" {name} " not in shown] == []


def test_without_a_command_the_help_is_shown(st3):
    assert "Usage: st3" in st3().output


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(st3, command):
    answer = st3(command, "--help")
    assert answer.exit_code == 0
    assert f"st3 {command}" in answer.stdout.partition("Usage")[2].partition("Options")[2] + answer.stdout
    assert "or example:" in answer.stdout


def test_the_options_of_train_are_grouped_in_panels(st3):
    shown = st3("train", "--help").stdout
    for panel in ("What to train", "How to train it", "The run", "The machine", "What is shown"):
        assert f"─ {panel} ─" in shown


def test_an_unknown_option_is_a_usage_error(st3):
    answer = st3("train", "--sparsty", "0.9")
    assert answer.exit_code == 2
    assert "--sparsity" in answer.stderr
    assert "Traceback" not in answer.output
