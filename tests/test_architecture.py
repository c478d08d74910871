"""The house keeps its order: imports follow the arrows, rooms have names, `import st3` stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOUSE = Path(__file__).parents[1] / "src" / "st3"

# Room -> the rooms it may import from (and itself). A room is a folder or a file right under st3.
ARROWS: dict[str, str] = {
    "atomic": "",
    "processor": "",
    "registry": "",
    "tables": "",
    "measure": "atomic tables",
    "models": "registry",
    "data": "atomic registry",
    "core": "measure registry tables",
    "ramps": "core registry",
    "allocations": "core registry",
    "methods": "core ramps registry",
    "files": "atomic core measure registry tables",
    "engine": "atomic core measure processor registry tables",
    "training": "atomic core measure methods files registry tables",
    "integrations": "core",
    "errors": "core files",
    "__init__": "allocations core engine errors files methods ramps",
}
ARROWS["experiments"] = " ".join(ARROWS)
ARROWS["cli"] = " ".join(ARROWS)
ARROWS["__main__"] = ""
NAMELESS = {"utils", "util", "helpers", "helper", "misc", "common"}


def room_of(path: Path, house: Path) -> str:
    return path.relative_to(house).parts[0].removesuffix(".py")


def imports(path: Path, house: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, room) for every import of `path` from within the house, inside functions too."""
    package = path.relative_to(house.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = [*above, node.module] if node.module else above
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == house.name:
                # `import st3` and `from st3 import sparsify` reach the front door, not a room.
                yield node.lineno, rest[0] if rest and is_room(house, rest[0]) else "__init__"


def is_room(house: Path, name: str) -> bool:
    return (house / name).is_dir() or (house / f"{name}.py").is_file()


def faults(house: Path) -> list[str]:
    """Return every breach of the table in the house, as lines a reader can act on."""
    found = []
    for path in sorted(house.rglob("*.py")):
        room, place = room_of(path, house), path.relative_to(house.parent)
        if path.stem in NAMELESS or path.parent.name in NAMELESS:
            found.append(f"{place}: a name that says nothing; call the file after its subject")
        if room not in ARROWS:
            found.append(f"{place}: room {room!r} is not in the table of arrows")
            continue
        for line, target in imports(path, house):
            if target != room and target not in ARROWS[room].split():
                found.append(f"{place}:{line}: {room} -> {target} is not an allowed arrow")
    return found


def test_imports_follow_the_arrows_and_every_room_has_a_name():
    assert faults(HOUSE) == []


def test_the_table_has_no_cycle():
    done: set[str] = set()
    while ready := {room for room in ARROWS.keys() - done if set(ARROWS[room].split()) <= done}:
        done |= ready
    assert done == ARROWS.keys()


@pytest.mark.parametrize(
    ("place", "line", "complaint"),
    [
        ("core/a.py", "from st3.methods import gmp", "core -> methods is not"),
        ("core/a.py", "from st3 import methods", "core -> methods is not"),
        ("core/a.py", "from ..methods.gmp import GMP", "core -> methods is not"),
        ("core/a.py", "from .. import methods", "core -> methods is not"),
        ("core/a.py", "import st3.methods.gmp as gmp", "core -> methods is not"),
        ("core/a.py", "def f():\n    import st3", "core -> __init__ is not"),
        ("core/deep/a.py", "from ...methods import gmp", "core -> methods is not"),
        ("core/utils.py", "", "says nothing"),
        ("core/helpers/a.py", "", "says nothing"),
        ("cellar/a.py", "", "room 'cellar' is not in the table"),
        ("methods/a.py", "import torch\nfrom st3.core import b\nfrom . import c\nimport st3.registry", None),
    ],
)
def test_the_check_sees(tmp_path, place, line, complaint):
    house = tmp_path / "st3"
    for room in ("core", "methods", Path(place).parent):
        (house / room).mkdir(parents=True, exist_ok=True)
    (house / "registry.py").touch()
    (house / place).write_text(line)
    found = faults(house)
    assert [complaint in fault for fault in found] == ([True] if complaint else [])


@pytest.fixture(scope="module")
def import_of_st3() -> dict[str, Any]:
    """What `import st3` adds to a process that has torch and numpy: packages, and seconds of processor time."""
    code = """
import sys, time, numpy, torch
before, began = {*sys.modules}, time.process_time()
import st3
seconds = time.process_time() - began
print(seconds, *{name.partition(".")[0] for name in {*sys.modules} - before})
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, *packages = done.stdout.split()
    return {"seconds": float(seconds), "packages": {*packages} - sys.stdlib_module_names}


def test_importing_st3_loads_nothing_beyond_torch_and_numpy(import_of_st3):
    assert import_of_st3["packages"] <= {"st3", "torch", "numpy"}


def test_importing_st3_costs_little_more_than_importing_torch(import_of_st3):
    assert (
        import_of_st3["seconds"] < 1.0
    )  # a quarter of that on an idle machine; torch itself takes two seconds
