"""Which pictures lie in which class folder: listed once, then kept in a file until a class folder changes.

Listing the 1.3 million files of ImageNet takes minutes on a slow disk; reading the times of its 2,000 folders does not.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..atomic import write_text
from .errors import DataError
from .places import cache_folder

__all__ = ["Listing", "list_pictures"]

FILE = ".st3-index.json"
VERSION = 1  # of the file's layout
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")

Listing = dict[str, list[str]]  # class -> names of its pictures, both sorted


def list_pictures(root: Path, parts: tuple[str, ...]) -> dict[str, Listing]:
    """Return the pictures of each part: a folder of class folders under `root`, or "" for `root` itself."""
    times = {part: _folder_times(root / part) for part in parts}
    places = _places(root)
    for place in places:
        known = _load(place, times)
        if known is not None:
            return known
    listings = {part: {name: _list_folder(root / part / name) for name in times[part]} for part in parts}
    text = json.dumps({"version": VERSION, "root": str(root.resolve()), "times": times, "pictures": listings})
    for place in places:
        if _save(place, text):
            break
    return listings


def _folder_times(part: Path) -> dict[str, int]:
    """Return when each class folder last changed, in nanoseconds."""
    try:
        with os.scandir(part) as entries:
            folders = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
            times = {folder.name: folder.stat().st_mtime_ns for folder in folders}
    except OSError as error:
        raise DataError(
            f"cannot list {part} ({error.strerror}); it must be a folder that holds one folder per class"
        ) from None
    if not times:
        raise DataError(f"{part} has no class folders; sort its pictures into one folder per class")
    return dict(sorted(times.items()))


def _list_folder(folder: Path) -> list[str]:
    names = sorted(
        name for name in os.listdir(folder) if name.lower().endswith(SUFFIXES) and not name.startswith(".")
    )
    if not names:
        raise DataError(
            f"class folder {folder} has no pictures ({', '.join(SUFFIXES)}); put some there, or remove the class"
        )
    return names


def _places(root: Path) -> list[Path]:
    """Return where the index is kept: in `root` or, if that cannot be written to, in the cache."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    try:
        return [root / FILE, cache_folder() / f"index-{name}.json"]
    except DataError:  # no home, no cache
        return [root / FILE]


def _load(place: Path, times: dict[str, dict[str, int]]) -> dict[str, Listing] | None:
    try:
        known: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        if known["version"] == VERSION and known["times"] == times:
            pictures: dict[str, Listing] = known["pictures"]
            if _is_complete(pictures, times):
                return pictures
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # missing, damaged or from another version: list the folders again
    return None


def _is_complete(pictures: dict[str, Listing], times: dict[str, dict[str, int]]) -> bool:
    """Return whether these are names of pictures for every class folder: others may write the file too."""
    return {part: sorted(listing) for part, listing in pictures.items()} == {
        part: sorted(folders) for part, folders in times.items()
    } and all(
        isinstance(names, list) and names and all(isinstance(name, str) and "/" not in name for name in names)
        for listing in pictures.values()
        for names in listing.values()
    )


def _save(place: Path, text: str) -> bool:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, text)
    except OSError:
        return False
    return True
