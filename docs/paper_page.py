"""Write docs/paper.md: for each figure and table of the paper the picture, the verdicts and the command.

    python docs/paper_page.py

It reads the studies' own words and what lies in results/studies/BUDGET/STUDY, trains nothing and draws nothing. A test
fails while the page says something else than this program would write.
"""

import inspect
from pathlib import Path

from st3.experiments.evidence import verdicts
from st3.experiments.evidence.outputs import POINTS, count_runs, verdict_table
from st3.experiments.evidence.points import read_points
from st3.experiments.grid.budgets import BUDGETS
from st3.experiments.studies import STUDIES, Study

DOCS = Path(__file__).parent
PAGE = DOCS / "paper.md"
RESULTS = DOCS.parent / "results" / "studies"
INTRODUCTION = """\
<!-- written by docs/paper_page.py: edit that, or the study -->
# The paper, figure by figure

Every figure and table of the paper is a *study*: some runs, a drawing, and the sentences of the paper that the runs can
test. `st3 study run NAME` trains what is missing and draws it; [docs/studies.md](studies.md) has the commands, budgets
and clusters. Pictures and verdicts below are of the runs whose points lie in
[`results/studies`](../results/studies): far smaller than the paper's, which is what the word "budget" says each time.
"""


def page() -> str:
    """Return the whole page."""
    order = sorted(STUDIES, key=lambda name: (STUDIES[name].shown_in, name))
    sections = [section(STUDIES[name]()) for name in order]
    return "\n".join([INTRODUCTION, rule(), *sections])


def rule() -> str:
    """Return how verdicts are found, from the docstring of the program that finds them."""
    _, text, more = inspect.getdoc(verdicts).split("\n\n")
    return f"## How a verdict is found\n\n{text.removeprefix('The rule. ')}\n\n{more}\n"


def section(study: Study) -> str:
    """Return what the page says about one study."""
    place = f"{study.shown_in[:1].upper()}{study.shown_in[1:]}"
    lines = [f"## {place}: {study.title}", "", f"{inspect.getdoc(study).splitlines()[0]}", ""]
    if study.differences:
        lines += [f"Different from the paper: {study.differences}", ""]
    for budget in BUDGETS:
        folder = RESULTS / budget / study.name
        if (folder / POINTS).exists():
            lines += _evidence(study, budget, folder)
    return "\n".join(lines)


def _evidence(study: Study, budget: str, folder: Path) -> list[str]:
    points = read_points(folder / POINTS)
    runs, size = count_runs(points), BUDGETS[budget]
    rests_on = f"{runs} runs" if runs else "no runs: published or computed numbers"
    path = f"../results/studies/{budget}/{study.name}"
    found = study.verdicts(points, size, folder)
    lines = [
        f"**Budget `{budget}`** ({size.about}), {rests_on}. [Table]({path}/README.md), [points]({path}/{POINTS}).",
        "",
        f"![{study.title}, budget {budget}]({path}/{study.name}.svg)",
        "",
    ]
    return [
        *lines,
        *verdict_table(found),
        "```sh",
        f"st3 study run {study.name} --budget {budget}",
        "```",
        "",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
