"""The files around the library agree with each other: workflows, Makefile, versions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import st3

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = re.findall(r"(?m)^([\w.-]+)\s*:(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"))


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def version_numbers(version):
    return [int(part) for part in version.split(".")]


def test_there_are_workflows_for_tests_docs_and_wheels():
    assert [path.stem for path in WORKFLOWS] == ["docs", "tests", "wheels"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_make_targets_that_exist_and_may_only_read(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    ran = [
        re.fullmatch(r"make (\w+)( [A-Z]+=\$\{\{ matrix\.\w+ \}\})?", s["run"]) for s in steps if "run" in s
    ]
    assert ran
    assert [match[1] for match in ran if match[1] not in TARGETS] == []
    used = [step["uses"] for step in steps if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+", name)] == []
    assert all("permissions" not in job for job in workflow["jobs"].values())


def test_the_tests_run_on_every_declared_python_and_on_the_torch_of_the_constraints():
    matrix = read(".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    named = [c.rpartition(" :: ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert matrix["python"] == named
    assert len(matrix["torch"]) == 2
    pinned = re.search(r"(?m)^torch==(.+)$", (ROOT / "constraints.txt").read_text())[1]
    everything = [*matrix["torch"], *(extra["torch"] for extra in matrix["include"])]
    assert pinned in everything
    assert version_numbers(pinned) <= version_numbers(matrix["torch"][1])


def test_the_version_stands_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert read("CITATION.cff")["version"] == st3.__version__


@pytest.mark.parametrize("name", ["bug", "wish"])
def test_issue_forms_ask_for_something(name):
    form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert any(field.get("validations", {}).get("required") for field in form["body"])
