"""The records of a resumed run."""

import warnings

import pytest

from st3.training.records import Records
from st3.training.sealed import parse_lines


def record(folder, epochs):
    """Record epochs of ten steps, every second one."""
    records = Records(folder)
    for epoch in range(1, epochs + 1):
        for step in range(10 * epoch - 8, 10 * epoch + 1, 2):
            records.on_step({"step": step, "epoch": step / 10})
        records.on_epoch({"epoch": epoch, "step": 10 * epoch}, {"conv": {"weights": 9}})


def numbers(folder, name, key):
    return [line.content[key] for line in parse_lines((folder / name).read_bytes())]


def test_what_was_recorded_after_the_checkpoint_is_dropped_without_a_word(tmp_path):
    record(tmp_path, 3)
    with (tmp_path / "steps.jsonl").open("ab") as file:
        file.write(b'{"step": 32, "ep')  # cut off by a kill
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Records(tmp_path).on_begin(False, 25, 2)
    assert numbers(tmp_path, "steps.jsonl", "step") == [*range(2, 25, 2)]
    assert numbers(tmp_path, "epochs.jsonl", "epoch") == numbers(tmp_path, "layers.jsonl", "epoch") == [1, 2]


@pytest.mark.parametrize(
    ("name", "damage", "lost"),
    [
        ("epochs.jsonl", lambda text: text.replace(b'"step": 10', b'"step": 11'), 1),
        ("epochs.jsonl", lambda text: b"\xff" + text, 1),
        ("layers.jsonl", lambda text: text[: len(text) // 2], 2),
        ("steps.jsonl", lambda text: text.replace(b'"step": 4,', b'"stop": 4,'), 1),
        ("steps.jsonl", lambda text: b"".join(text.splitlines(keepends=True)[:12]), 3),
        ("steps.jsonl", lambda text: b'{"step": "x"}\n[]\n' + text, 2),
    ],
)
def test_lost_lines_are_counted_in_a_warning_and_training_goes_on(tmp_path, name, damage, lost):
    record(tmp_path, 3)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.warns(
        UserWarning, match=rf"{name} is damaged: {lost} of its lines are lost, which changes the report"
    ):
        Records(tmp_path).on_begin(False, 30, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Records(tmp_path).on_begin(False, 30, 3)  # what is left is in order
    assert not [line.fault for line in parse_lines((tmp_path / name).read_bytes()) if line.fault]
