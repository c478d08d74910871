"""From a name, a file and options to a study and its budget."""

from collections.abc import Sequence
from pathlib import Path

from ...training.sections import SettingsError
from ..grid.budgets import BUDGETS, Budget
from .own import read_study
from .study import STUDIES, Study

__all__ = ["choose_study"]


def choose_study(
    name: str,
    budget: str | None = None,
    *,
    epochs: int | None = None,
    seeds: int | None = None,
    sparsities: Sequence[float] | None = None,
    methods: Sequence[str] | None = None,
) -> tuple[Study, Budget]:
    """Return a study of the paper, or one of the user's own from a TOML file, and its budget, narrowed."""
    study: Study
    if name.endswith(".toml"):
        if budget is not None:
            raise SettingsError(name, [f"says its own budget: leave out --budget {budget}"])
        study, size = read_study(Path(name))
    else:
        study = STUDIES[name]()
        size = BUDGETS[budget or study.usual_budget]
    if methods is not None:
        known = {series.name for panel in study.panels() for series in panel.series}
        if unknown := [method for method in methods if method not in known]:
            faults = [f"has no curve {method!r} (known: {', '.join(sorted(known))})" for method in unknown]
            raise SettingsError(f"study {study.name!r}", faults)
    return study, size.narrow(epochs=epochs, seeds=seeds, sparsities=sparsities, methods=methods)
