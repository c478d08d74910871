"""Runs of earlier versions stay readable."""

import json
from pathlib import Path

import pytest

from st3.experiments.page import write_page
from st3.experiments.protocols import PROTOCOLS
from st3.experiments.results import Run
from st3.experiments.spec import compose, read_spec
from st3.training.sections import SettingsError

from .made_up import write_run

RESULTS = sorted((Path(__file__).parents[2] / "results" / "cifar10-resnet20-8-epochs").glob("*/spec.json"))
CYCLES = {"prune": 0.5, "reset_seed": False, "carry": "best"}


def write_old_spec(path, spec, **old):
    """Write the spec as it was before it had the sections `protocol` and `part`."""
    values = spec.model_dump(mode="json", exclude={"protocol", "part"})
    path.write_text(json.dumps(values | {"dense_twin": False, "cycles": None, "cycle": None} | old))
    return path


def test_a_run_with_or_without_a_dense_twin_is_translated(tmp_path):
    for protocol, has_twin in (("twin", True), ("single", False)):
        spec = compose(protocol=protocol, epochs=3)
        assert read_spec(write_old_spec(tmp_path / "spec.json", spec, dense_twin=has_twin)) == spec


def test_an_unset_setting_that_is_gone_is_left_out(tmp_path):
    spec = compose(epochs=3)
    values = spec.model_dump(mode="json")
    for limit, is_read in ((None, True), (1.0, False)):
        values["recipe"]["clip_rms"] = limit
        (tmp_path / "spec.json").write_text(json.dumps(values))
        if is_read:
            assert read_spec(tmp_path / "spec.json") == spec
        else:
            with pytest.raises(SettingsError, match=r"unknown key 'recipe\.clip_rms'"):
                read_spec(tmp_path / "spec.json")


def test_a_run_in_cycles_and_its_cycles_are_translated(tmp_path):
    spec = compose(protocol={"name": "lrr", "arguments": CYCLES}, sparse={"method": "st3"}, epochs=3)
    assert read_spec(write_old_spec(tmp_path / "spec.json", spec, cycles=CYCLES)) == spec
    parts = PROTOCOLS["lrr"](**CYCLES).parts(spec)
    assert len(parts) == 5
    for number, part in enumerate(parts):
        old = write_old_spec(tmp_path / "cycle.json", part.spec, cycles=CYCLES, cycle=number)
        assert read_spec(old) == part.spec


def test_the_folder_of_an_old_run_is_read_with_its_dense_twin(tmp_path):
    folder = write_run(tmp_path / "run", with_twin=True)
    for path in (folder / "spec.json", folder / "dense" / "spec.json"):
        values = json.loads(path.read_text())
        has_twin = values.pop("protocol")["name"] == "twin"
        path.write_text(json.dumps(values | {"dense_twin": has_twin}))
    run = Run.open(folder)
    assert run.twin is not None
    assert "the dense twin reaches" in write_page(folder).read_text()


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
def test_stored_results_are_read_and_shown(path, tmp_path):
    spec, run = read_spec(path), Run.open(path.parent)
    assert (spec.protocol.name, spec.part) == ("single", None)
    assert run.planned_epochs == len(run.epochs) == spec.recipe.epochs
    assert run.model in write_page(path.parent, tmp_path / "page.html").read_text()


def test_there_are_stored_results():
    assert len(RESULTS) == 9
