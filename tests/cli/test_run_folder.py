"""The folder of a run if none is given, and the error if there is no run in it."""

import pytest

from st3.cli.run_folder import no_run_to_resume, usual_folder
from st3.experiments.spec import compose


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({}, "digits-digits_cnn-st3-0.9-seed0"),
        ({"sparse": {"sparsity": 0.995, "method": "feather"}}, "digits-digits_cnn-feather-0.995-seed0"),
        ({"sparse": {"method": "dense"}, "seeds": {"init": 3}}, "digits-digits_cnn-dense-seed3"),
        ({"sparse": {"block": 4}}, "digits-digits_cnn-st3-0.9-block4-seed0"),
        ({"model": {"name": "my.nets:Tiny"}}, "digits-my.nets-Tiny-st3-0.9-seed0"),
        ({"model": {"name": "a b/c:d"}}, "digits-a-b-c-d-st3-0.9-seed0"),
    ],
)
def test_the_name_says_what_is_trained(tmp_path, asked, name):
    assert usual_folder(compose(**asked), tmp_path) == tmp_path / name


def test_a_name_that_is_taken_gets_a_number(tmp_path):
    spec = compose()
    for ending in ("", "-2", "-3"):
        folder = usual_folder(spec, tmp_path)
        assert folder.name == f"digits-digits_cnn-st3-0.9-seed0{ending}"
        folder.mkdir()


def test_runs_nearby_are_named_the_most_similar_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second", "no_run"):
        (tmp_path / name).mkdir()
    for name in ("first", "second"):
        (tmp_path / name / "spec.json").touch()
    message = str(no_run_to_resume(tmp_path / "frist"))
    assert message == f"there is no run in {tmp_path / 'frist'} to resume; nearby: {tmp_path / 'first'}"
    message = str(no_run_to_resume(tmp_path / "xyz"))
    assert message.endswith(f"nearby: {tmp_path / 'first'}, {tmp_path / 'second'}")


def test_if_there_is_no_run_at_all_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = str(no_run_to_resume(tmp_path / "a" / "b"))
    assert message.endswith("to resume; there is none nearby either; start one without --resume")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff{}", "is damaged: line 1: not UTF-8"),
        (b'{"a":' * 99_999, "is damaged: line 1: nested too deeply"),
        (b"[]", "is damaged: line 1: expected a JSON object, found a list"),
    ],
    ids=["not UTF-8", "nested", "a list"],
)
def test_a_damaged_spec_is_reported_in_one_sentence(st3, tmp_path, content, message):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "spec.json").write_bytes(content)
    answer = st3("train", "--run", "a", "--resume")
    assert answer.exit_code == 1
    assert answer.stderr.startswith(f"error: a/spec.json: {message}")
    assert answer.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_created_is_named(st3, tmp_path):
    (tmp_path / "file").touch()
    answer = st3("train", "--quiet", "--run", "file/a")
    message = "error: cannot use file/a for a run: Not a directory; choose another --run\n"
    assert (answer.exit_code, answer.stderr) == (1, message)
