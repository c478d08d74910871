"""Measure which alternative is fastest, once for each shape, sparsity and number of threads, and cache the result.

The cache file is in the user's cache folder; $ST3_TUNING names another file, or is "off".
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from ...atomic import write_text
from ...processor import instruction_sets, processor
from .assemble import Alternative

VERSION = 6  # of the kernels: older measurements are void
MAX_TRIES = 16  # measure this many alternatives, lowest estimates first
MIN_PER_KIND = 4  # and at least this many of each kind (sparse, dense, ...)
MAX_COST_RATIO = 2.5  # unless their estimate exceeds the best one by this factor


class Tuner:
    """Chooses the fastest alternatives and caches the choices."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.known: dict[str, str] = read_cache(file) if file else {}
        self.changed = False

    def choose(
        self, key: str, alternatives: list[Alternative], time: Callable[[list[Alternative]], list[float]]
    ) -> tuple[Alternative, dict[str, float]]:
        """Return the fastest alternative, and the measured milliseconds by label."""
        labels = {each.label: each for each in alternatives}
        if self.known.get(key) in labels:
            return labels[self.known[key]], {}
        ranked = sorted(alternatives, key=lambda each: each.cost)
        candidates = ranked[:MAX_TRIES]
        near = [each for each in ranked[MAX_TRIES:] if each.cost < MAX_COST_RATIO * ranked[0].cost]
        for kind in dict.fromkeys(map(kind_of, ranked)):
            tried = sum(kind_of(each) == kind for each in ranked[:MAX_TRIES])
            candidates += [each for each in near if kind_of(each) == kind][: max(0, MIN_PER_KIND - tried)]
        if len(candidates) == 1:
            return candidates[0], {}
        measured = dict(zip((each.label for each in candidates), time(candidates), strict=True))
        best = min(measured, key=measured.__getitem__)
        self.known[key] = best
        self.changed = True
        return labels[best], measured

    def save(self) -> None:
        """Write the cache file. If that fails, the next process measures again."""
        if self.file is None or not self.changed:
            return
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            known = {**read_cache(self.file), **self.known}  # another process may have added entries
            content = {"version": VERSION, "fastest": known}
            write_text(self.file, json.dumps(content, indent=0, sort_keys=True))
        self.changed = False


def kind_of(alternative: Alternative) -> str:
    """Return the kind of an alternative; estimates are better within a kind than between kinds."""
    return "apart" if alternative.label.startswith("sparse apart") else alternative.kernel


def read_cache(file: Path) -> dict[str, str]:
    """Return the cached labels; none if the file is missing, damaged or of another version."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            return {}
        return {str(key): str(label) for key, label in content["fastest"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def cache_file() -> Path | None:
    """Return the path of the cache file; None if caching is off or the user has no home."""
    asked = os.environ.get("ST3_TUNING", "")
    if asked == "off":
        return None
    if asked:
        return Path(asked)
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # neither $HOME nor an entry in the list of users
        return None
    return folder / "st3" / f"tuning-{_slug(processor())}-{_digest(processor(), *instruction_sets())}.json"


def _slug(text: str) -> str:
    """Return the text in a form that can be part of a file name.

    >>> _slug("Intel(R) Xeon(R), model 207")
    'intel-r-xeon-r-model-207'
    """
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text).split()).lower()


def _digest(*words: str) -> str:
    """Return a short name for exactly these words: virtual machines hide instructions of the same processor."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]
