"""Write docs/paper.md: for each figure and table of the paper the picture, the verdicts and the command; and README's
short table of verdicts.

    python docs/paper_page.py

It reads the studies' own words and what lies in results/studies/BUDGET/STUDY, trains nothing and draws nothing. A test
fails while the page says something else than this program would write.
"""

import inspect
import re
from pathlib import Path

from generated import fill_tables

from st3.experiments.evidence import verdicts
from st3.experiments.evidence.outputs import POINTS, count_runs, verdict_table
from st3.experiments.evidence.points import read_points
from st3.experiments.grid.budgets import BUDGETS, Budget, budget_named
from st3.experiments.studies import STUDIES, Study

DOCS = Path(__file__).parent
PAGE = DOCS / "paper.md"
README = DOCS.parent / "README.md"
PROGRAM = "docs/paper_page.py"
SHORT = {"digits": "digits", "cifar-short": "CIFAR-10, 8 epochs"}  # the budgets of README's table
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
    sections = [section(study) for study in _in_order()]
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
    for budget in _budgets():
        folder = RESULTS / budget.name / study.name
        if (folder / POINTS).exists():
            lines += _evidence(study, budget, folder)
    return "\n".join(lines)


def _evidence(study: Study, budget: Budget, folder: Path) -> list[str]:
    points = read_points(folder / POINTS)
    runs = count_runs(points)
    rests_on = f"{runs} runs" if runs else "no runs: published or computed numbers"
    path = f"../results/studies/{budget.name}/{study.name}"
    found = study.verdicts(points, budget, folder)
    lines = [
        f"**Budget `{budget.name}`** ({budget.about}), {rests_on}. [Table]({path}/README.md), "
        f"[points]({path}/{POINTS}).",
        "",
        f"![{study.title}, budget {budget.name}]({path}/{study.name}.svg)",
        "",
    ]
    return [
        *lines,
        *verdict_table(found),
        "```sh",
        f"st3 study run {study.name} --budget {_options(budget)}",
        "```",
        "",
    ]


def _budgets() -> list[Budget]:
    """Return the budgets of which there are results, one with other epochs behind the one it comes from."""
    order = list(BUDGETS)
    found = [budget_named(folder.name) for folder in RESULTS.iterdir()]
    return sorted(found, key=lambda budget: (order.index(_options(budget).split()[0]), budget.name))


def _options(budget: Budget) -> str:
    """Return the words after `--budget`."""
    return re.sub(r"-(\d+)-epochs$", r" --epochs \1", budget.name)


def short_table() -> str:
    """Return every claim that runs of ours have tested, with its verdict at each budget."""
    rows = []
    for study in _in_order():
        found = [_answers(study, budget_named(budget)) for budget in SHORT]
        sentences = dict.fromkeys(sentence for answers in found for sentence in answers)
        rows += [[sentence, *(answers.get(sentence, "") for answers in found)] for sentence in sentences]
    table = [["the paper says", *SHORT.values()], ["---"] * (1 + len(SHORT)), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def _answers(study: Study, budget: Budget) -> dict[str, str]:
    """Return the verdict on each claim of a study, without the words about the budget; nothing without runs."""
    folder = RESULTS / budget.name / study.name
    points = read_points(folder / POINTS) if (folder / POINTS).exists() else []
    if not count_runs(points):
        return {}
    return {
        verdict.sentence: verdict.answer.removesuffix(" at this budget")
        for verdict in study.verdicts(points, budget, folder)
    }


def _in_order() -> list[Study]:
    """Return the studies in the order of the paper."""
    shown = [STUDIES[name]() for name in STUDIES if STUDIES[name].shown_in]
    return sorted(shown, key=lambda study: (study.shown_in, study.name))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    fill_tables(README, {"verdicts": short_table()}, PROGRAM)
