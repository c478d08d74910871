"""What holds for every protocol, and that a new one is one class: nothing else has to know it."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from st3.cli.app import app
from st3.cli.train import train
from st3.experiments.protocols import PROTOCOLS, Part, PartSpec, Protocol
from st3.experiments.results import Run
from st3.experiments.spec import Spec, compose
from st3.training.paths import is_part_folder, part_folder


def parts_of(name):
    spec = compose(protocol=name)
    return PROTOCOLS[name](**spec.protocol.arguments).parts(spec)


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_every_part_has_its_own_folder_and_title(name):
    parts, kind = parts_of(name), PROTOCOLS[name].kind
    assert len({part.folder for part in parts}) == len({part.title for part in parts}) == len(parts) > 0
    assert all(part.folder == "" or is_part_folder(part.folder, kind) for part in parts)


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_the_last_part_is_in_the_folder_of_the_run_if_the_run_trains_itself(name):
    assert [part.folder == "" for part in parts_of(name)][-1] is PROTOCOLS[name].trains_itself


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_the_spec_of_every_part_can_be_stored_and_read(name):
    for part in parts_of(name):
        assert Spec.model_validate(json.loads(part.spec.model_dump_json())) == part.spec


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_parts_in_other_folders_are_single(name):
    assert {part.spec.protocol.name for part in parts_of(name) if part.folder} <= {"single"}


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_the_options_that_choose_it_are_options_of_st3_train(name):
    assert set(PROTOCOLS[name].options) <= set(inspect.signature(train).parameters)


@dataclass(frozen=True)
class Repeats(Protocol):
    """Train several times, with other pictures each time."""

    kind: ClassVar[str] = "repeat"
    trains_itself: ClassVar[bool] = False
    usual: ClassVar[Mapping[str, object]] = {"sparsity": 0.5}
    times: int = 2

    def parts(self, spec):
        found = []
        for number in range(self.times):
            part = PartSpec(title=f"repeat {number}", first_epoch=number * spec.recipe.epochs)
            own = spec.alone().model_copy(update={"part": part})
            found.append(Part(own, part.title, part_folder(self.kind, number)))
        return found


def test_a_new_protocol_is_one_class(tmp_path, monkeypatch):
    monkeypatch.setitem(PROTOCOLS._things, "repeats", Repeats)

    def st3(*words):
        answer = CliRunner().invoke(app, [str(word) for word in words])
        assert answer.exit_code == 0, answer.output
        return answer

    folder = tmp_path / "run"
    words = ("train", "--protocol", "repeats", "--set", "protocol.arguments.times=3", "--epochs", 1)
    answer = st3(*words, "--run", folder)
    lines = answer.stderr.splitlines()
    assert "protocol  repeats" in lines
    assert [line for line in lines if line.startswith("repeat ")] == [
        f"repeat {n} ({n + 1} of 3)" for n in range(3)
    ]
    head, *rows = answer.stdout.split("\n\n")[0].strip().splitlines()
    assert head.split()[0] == "repeat"
    assert [row.split()[-1] for row in rows] == ["repeat-00", "repeat-01", "repeat-02"]
    run = Run.open(folder)
    assert (len(run.parts), len(run.epochs), run.planned_epochs, run.target) == (3, 3, 3, 0.5)
    assert len({json.dumps(part.summary["test"]) for part in run.parts}) == 3
    assert "<h2>Repeats</h2>" in (folder / "report.html").read_text()
    assert "repeat 1" in (folder / "repeat-01" / "report.html").read_text()
    assert f"{folder}/repeat-02/model.safetensors" in st3("eval", folder).stdout
    assert "this run is already finished" in st3(*words, "--run", folder, "--resume").stderr
    assert "repeats" in st3("list", "protocols").stdout
