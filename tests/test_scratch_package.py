"""A method, an allocation and a ramp are one file each: a package outside of the library passes the contract suites."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.processes import run_python

ROOT = Path(__file__).parents[1]
SUITES = (
    "tests/methods/test_every_method.py",
    "tests/allocations/test_every_allocation.py",
    "tests/ramps/test_every_ramp.py",
)
FILES = {
    "__init__": "from . import allocation, method, ramp\n",
    "method": '''
from dataclasses import dataclass

import torch

from st3.methods import METHODS, ThresholdMethod


@METHODS.register("scratch_halves")
@dataclass(frozen=True)
class ScratchHalves(ThresholdMethod):
    """Active weights count half."""

    part: float = 0.5

    def sparse_weight(self, view):
        view.sparse.copy_(torch.where(view.raw.abs() > view.threshold, self.part * view.raw, 0.0))


@METHODS.register("crooked")
@dataclass(frozen=True)
class Crooked(ThresholdMethod):
    """Zeroes too little."""

    def sparse_weight(self, view):
        view.sparse.copy_(torch.where(view.raw.abs() > 0.9 * view.threshold, view.raw, 0.0))
''',
    "allocation": '''
from dataclasses import dataclass

from st3.allocations import ALLOCATIONS, Allocation


@ALLOCATIONS.register("scratch_roots")
@dataclass(frozen=True)
class ScratchRoots(Allocation):
    """What a layer keeps grows with the square root of its size."""

    def cut(self, pool, quota):
        roots = [layer.numel**0.5 for layer in pool.layers]
        kept = pool.numel - quota.zeros
        ideal = [
            layer.numel - min(layer.numel, kept * root / sum(roots))
            for layer, root in zip(pool.layers, roots, strict=True)
        ]
        return pool.cut_by_counts(ideal, quota)
''',
    "ramp": '''
from dataclasses import dataclass

from st3.ramps import RAMPS, Ramp


@RAMPS.register("scratch_stairs")
@dataclass(frozen=True)
class ScratchStairs(Ramp):
    """Equal steps up; the target is reached with the last step of the run."""

    stairs: int = 4

    def share(self, step, total_steps):
        return min(1.0, step * self.stairs // total_steps / self.stairs)
''',
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write the package and run it through the suites in a process of its own; return how each test ended."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "scratch_package").mkdir()
    for name, text in FILES.items():
        (folder / "scratch_package" / f"{name}.py").write_text(text, encoding="utf-8")
    chosen = "scratch or (crooked and (any_target or every_ramp))"
    words = [*SUITES, "-p", "scratch_package", "-k", chosen]
    words += [
        "-rA",
        "-q",
        "--tb=no",
        "--show-capture=no",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=ci",
    ]
    code = f"import pytest, sys; sys.path.insert(0, {str(folder)!r}); sys.exit(pytest.main(sys.argv[1:]))"
    done = run_python(code, *words, folder=ROOT)
    found = {
        test: word
        for word, test in re.findall(r"(?m)^(PASSED|FAILED|ERROR) (tests/\S+::.+?)(?: - .*)?$", done.stdout)
    }
    assert found, done.stdout + done.stderr
    return found


def test_plug_ins_outside_of_the_library_keep_the_contracts(outcomes):
    failed = [test for test, word in outcomes.items() if word != "PASSED" and "crooked" not in test.lower()]
    assert failed == []


def test_each_plug_in_went_through_its_suite_and_beside_every_other(outcomes):
    passed = [test for test, word in outcomes.items() if word == "PASSED"]
    by_file = Counter(test.partition("::")[0] for test in passed)
    assert (
        by_file["tests/methods/test_every_method.py"] > 40
    )  # of the method, and every method with the others
    assert by_file["tests/allocations/test_every_allocation.py"] > 10
    assert by_file["tests/ramps/test_every_ramp.py"] > 5
    for pair in (
        "scratch_roots-scratch_halves",
        "scratch_stairs-scratch_halves",
        "scratch_roots-gmp",
        "scratch_stairs-gmp",
    ):
        assert any(pair in test for test in passed), pair


def test_a_method_that_misses_its_target_fails(outcomes):
    mine = {test: word for test, word in outcomes.items() if "crooked" in test.lower()}
    assert set(mine.values()) == {"FAILED"}
    assert len(mine) >= 4
