"""Builds the engine's C library into the wheel where a C compiler is found; without one the wheel is pure Python."""

import importlib.util
import platform
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENGINE = Path("src", "st3", "engine")


class Kernels(BuildHookInterface[Any]):
    """Compiles the kernels: into the source tree for an editable install, else into the wheel."""

    scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        build = _load(Path(self.root) / ENGINE / "build.py")
        if version == "editable":
            folder = Path(self.root) / ENGINE
        else:
            self.scratch = tempfile.TemporaryDirectory()
            folder = Path(self.scratch.name)
        try:
            library = _current(folder / build.LIBRARY, Path(self.root) / ENGINE) or build.build(folder)
        except build.BuildError as error:
            self.app.display_warning(
                f"st3.engine's C library was not built: {error}\n"
                "st3 works without it, at the speed of torch; `python -m st3.engine.build` builds it later."
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        if version != "editable":
            build_data["force_include"][str(library)] = f"st3/engine/{library.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.scratch is not None:
            self.scratch.cleanup()


def _load(path: Path) -> ModuleType:
    """Load one file of the package by itself: the package needs torch, which a build environment has not."""
    spec = importlib.util.spec_from_file_location("st3_engine_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _current(library: Path, engine: Path) -> Path | None:
    """Return the library if it is newer than everything it is made from."""
    sources = [engine / "build.py", *(engine / "c").iterdir()]
    is_current = library.is_file() and library.stat().st_mtime > max(each.stat().st_mtime for each in sources)
    return library if is_current else None


def _platform() -> str:
    """Return the plain tag of this platform; auditwheel turns it into a manylinux tag after a check.

    A universal Python of macOS runs on two architectures, but the library is compiled for one.
    """
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return name.replace("-", "_").replace(".", "_")
