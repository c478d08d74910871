"""Which pictures lie in which class folder: listed once, then kept in a file until a class folder changes.

Listing the 1.3 million files of ImageNet takes minutes on a slow disk; looking at the times of 2,000 folders does not.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from .errors import DataError
from .places import cache_folder

__all__ = ["Listing", "index"]

FILE = ".st3-index.json"
VERSION = 1  # of the file's layout
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")

Listing = dict[str, list[str]]  # class -> names of its pictures, both sorted


def index(root: Path, parts: tuple[str, ...]) -> dict[str, Listing]:
    """Return the pictures of each part, a folder of class folders right under `root`."""
    times = {part: _times(root / part) for part in parts}
    places = (root / FILE, _own_place(root))
    for place in places:
        known = _load(place, times)
        if known is not None:
            return known
    listings = {part: {name: _pictures(root / part / name) for name in times[part]} for part in parts}
    text = json.dumps({"version": VERSION, "root": str(root.resolve()), "times": times, "pictures": listings})
    for place in places:
        if _save(place, text):
            break
    return listings


def _times(part: Path) -> dict[str, int]:
    """Return when each class folder last changed, in nanoseconds."""
    try:
        with os.scandir(part) as entries:
            folders = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
            times = {folder.name: folder.stat().st_mtime_ns for folder in folders}
    except OSError as error:
        raise DataError(
            f"cannot list {part} ({error.strerror}); give the directory in which each of train/ and val/ holds"
            " one folder per class"
        ) from None
    if not times:
        raise DataError(f"{part} has no class folders; sort its pictures into one folder per class")
    return dict(sorted(times.items()))


def _pictures(folder: Path) -> list[str]:
    names = sorted(
        name for name in os.listdir(folder) if name.lower().endswith(ENDINGS) and not name.startswith(".")
    )
    if not names:
        raise DataError(
            f"{folder} has no pictures ({', '.join(ENDINGS)}); put some there, or remove the class from train/"
            " and val/"
        )
    return names


def _own_place(root: Path) -> Path:
    """Return the file for data that lies where we may not write."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return cache_folder() / f"index-{name}.json"


def _load(place: Path, times: dict[str, dict[str, int]]) -> dict[str, Listing] | None:
    try:
        known: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        if known["version"] == VERSION and known["times"] == times:
            pictures: dict[str, Listing] = known["pictures"]
            return pictures
    except (OSError, ValueError, KeyError, TypeError):
        pass  # missing, damaged or of another version: it is made anew
    return None


def _save(place: Path, text: str) -> bool:
    scratch = place.with_name(f"{place.name}.{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(place)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        return False
    return True
