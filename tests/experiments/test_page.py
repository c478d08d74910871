"""The page of a run, and its charts."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from st3.experiments.page import write_figures, write_page
from st3.files.weights import write_weights
from st3.models import MODELS

from .made_up import write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
)
SCRIPT = "<script>alert('run')</script>"
VOID = {"meta", "link", "br", "hr", "input", "img", "path", "circle", "rect", "line"}


class Reader(HTMLParser):
    """Collects what a browser would see: elements, and text by the element that holds it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.path: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.path.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while tag in self.path and self.path.pop() != tag:
            pass  # HTML lets cells and rows end by themselves

    def handle_data(self, data: str) -> None:
        if self.path:
            self.texts.setdefault(self.path[-1], []).append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def read(path: Path) -> Reader:
    reader = Reader(path.read_text(encoding="utf-8"))
    assert reader.path == []
    return reader


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_page_is_written_into_the_folder_or_where_asked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert write_page(run) == run / "report.html"
    assert write_page(run, tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["page.html"]


def test_the_headline_states_the_result(tmp_path: Path) -> None:
    run = write_run(tmp_path, with_twin=True)
    edit(run / "summary.json", test={"loss": 0.3, "accuracy": 0.9054})
    edit(run / "dense" / "summary.json", test={"loss": 0.3, "accuracy": 0.9164})
    page = read(write_page(run))
    assert "".join(page.texts["h1"]).replace("\xa0", " ") == "resnet20 on cifar10, st3 at 95 % sparsity"
    text = "".join(page.texts["p"]).replace("\xa0", " ")
    assert "Test accuracy 90.54 % with the weights of epoch 8; the dense twin reaches 91.64 %" in text
    assert "−1.10 points" in text


@pytest.mark.parametrize(("epochs", "layers"), [(1, 1), (3, 4), (160, 54)])
def test_pages_are_small_for_few_and_many_epochs_and_layers(tmp_path: Path, epochs: int, layers: int) -> None:
    path = write_page(write_run(tmp_path, epochs, layers=layers, with_twin=True))
    assert path.stat().st_size < 300_000
    assert read(path).count("title") >= 9  # of the page and of each chart


def test_a_dense_run_has_no_chart_of_sparsity(tmp_path: Path) -> None:
    run = write_run(tmp_path, method=None)
    assert {path.stem for path in write_figures(run)} == {"accuracy", "loss", "rate"}
    assert "dense" in "".join(read(write_page(run)).texts["h1"])


def test_the_page_of_an_unfinished_run_says_so(tmp_path: Path) -> None:
    text = write_page(write_run(tmp_path, 3, planned=8)).read_text()
    assert "Not finished: this page shows 3 of 8 epochs." in text
    assert "The model file is written when the run finishes." in text
    assert f"st3 train --run {tmp_path} --resume" in text


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{}")
    assert "No epoch is finished yet." in write_page(tmp_path).read_text()
    assert write_figures(tmp_path) == []


def test_missing_numbers_leave_gaps(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    lines = [json.loads(line) for line in (run / "epochs.jsonl").read_text().splitlines()]
    lines[3]["validation"] = {"loss": None, "accuracy": None}
    lines[4]["train"] = None
    (run / "epochs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    text = write_page(run).read_text().lower()
    assert not re.search(r'd="[^"]*(nan|inf|none)', text)


def test_a_layer_without_active_weights_is_marked(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    summary = json.loads((run / "summary.json").read_text())
    row = summary["report"]["layers"][0]
    row |= {"zeros": row["weights"], "sparsity": 1.0, "sparse_macs": 0}
    edit(run / "summary.json", report=summary["report"])
    assert "no weight left" in write_page(run).read_text()


def test_names_are_never_read_as_markup(tmp_path: Path) -> None:
    names = [f"{SCRIPT}.weight", '"><img src=x onerror=alert(1)>', "a'b&c"]
    run = write_run(tmp_path / "<script>alert(1)<" / "script>", names=names, with_twin=True)
    edit(run / "spec.json", data={"name": SCRIPT}, extra={SCRIPT: SCRIPT})
    edit(run / "versions.json", cpu=SCRIPT, command=["st3", SCRIPT])
    page = read(write_page(run))
    assert page.count("script") == 1
    assert page.count("img") == 0
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    for path in write_figures(run):
        assert not [e.tag for e in ET.parse(path).iter() if e.tag.endswith(("script", "img"))]


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    path = write_page(write_run(tmp_path, with_twin=True))
    page = read(path)
    links = [
        a[key] or ""
        for _, a in page.elements
        for key in ("src", "href", "srcset", "data", "action")
        if key in a
    ]
    assert links == ["data:,"]
    assert "@import" not in path.read_text()
    assert "url(" not in path.read_text()
    policies = [a["content"] or "" for tag, a in page.elements if tag == "meta" and "http-equiv" in a]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policies[0]
    assert not [a for _, a in page.elements if "style" in a]  # the policy would forbid it


def test_every_chart_has_a_title_and_a_description(tmp_path: Path) -> None:
    run = write_run(tmp_path, with_twin=True)
    paths = write_figures(run)
    names = "accuracy loss sparsity rate threshold switches layer-sparsity layer-density layer-macs"
    assert {path.stem for path in paths} == set(names.split())
    assert {path.parent for path in paths} == {run / "figures"}
    for path in paths:
        drawing = ET.parse(path).getroot()
        space = "{http://www.w3.org/2000/svg}"
        assert drawing.findtext(f"{space}title")
        assert drawing.findtext(f"{space}desc")
        assert "var(" not in path.read_text()  # which many SVG viewers do not support


def lines_of_code(run: Path) -> str:
    page = read(write_page(run))
    return next(text for text in page.texts["code"] if "load_state_dict" in text)


def test_the_lines_that_load_the_model_work(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a 'run'", name="digits_cnn")
    model = MODELS["digits_cnn"](classes=7, channels=3)
    about = {"model": {"name": "digits_cnn", "arguments": {}, "classes": 7, "channels": 3}}
    write_weights(run / "model.safetensors", model.state_dict(), about)
    code = lines_of_code(run)
    assert 'model = MODELS["digits_cnn"](classes=7, channels=3)' in code
    space: dict[str, Any] = {}
    exec(code, space)
    assert torch.equal(space["model"].fc.weight, model.fc.weight)
    assert not space["model"].training


def test_those_lines_include_the_arguments_in_the_spec(tmp_path: Path) -> None:
    run = write_run(tmp_path, arguments={"conv_shortcut": False})
    assert 'model = MODELS["resnet20"](conv_shortcut=False)' in lines_of_code(run)


def test_those_lines_import_the_users_own_function(tmp_path: Path) -> None:
    code = lines_of_code(write_run(tmp_path, name="my_project.nets:build", arguments={"width": 2}))
    assert "from my_project.nets import build" in code
    assert "model = build(width=2)" in code


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the PATH")
@pytest.mark.parametrize("kind", ["finished", "going", "dense"])
def test_the_page_renders_without_console_errors(tmp_path: Path, kind: str) -> None:
    shapes: dict[str, dict[str, Any]] = {
        "finished": {"with_twin": True, "names": [SCRIPT, "conv1.weight"]},
        "going": {"planned": 20},
        "dense": {"method": None},
    }
    path = write_page(write_run(tmp_path / "run", **shapes[kind]))
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path / 'browser'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "</html>" in done.stdout
    assert [
        line for line in done.stderr.splitlines() if "CONSOLE" in line or "Content Security" in line
    ] == []
