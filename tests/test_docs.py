"""The docs are true: their Python runs, the `make` targets they name exist, their links lead somewhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from urllib.parse import unquote

import pytest
from tests.processes import run_python

ROOT = Path(__file__).parents[1]
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "RELEASING.md", "SECURITY.md")
PAGES = [ROOT / name for name in TOP if (ROOT / name).exists()] + sorted((ROOT / "docs").rglob("*.md"))

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@dataclass(frozen=True)
class Block:
    language: str
    line: int  # of the opening fence, counted from 1
    text: str


def blocks(markdown: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    lines = markdown.splitlines()
    number = 0
    while number < len(lines):
        fence = re.fullmatch(r"[ >]*(`{3,}|~{3,})\s*(\S*)[^`]*", lines[number])
        start, number = number, number + 1
        if not fence:
            continue
        while number < len(lines) and not re.fullmatch(rf"[ >]*{fence[1]}+\s*", lines[number]):
            number += 1
        yield Block(fence[2].lower(), start + 1, dedent("\n".join(lines[start + 1 : number])))
        number += 1


def program(markdown: str) -> str:
    """Return the Python blocks of a page as one program in which each line keeps its number."""
    lines: list[str] = []
    for block in blocks(markdown):
        if block.language == "python":
            lines += [""] * (block.line - len(lines)) + block.text.split("\n")
    return "\n".join(lines)


def run(page: Path, folder: Path) -> None:
    """Run the Python of `page` in a process of its own, as a reader would, inside `folder`."""
    code = program(page.read_text(encoding="utf-8"))
    if not code:
        return
    done = run_python(code, name=str(page), folder=folder)
    if done.returncode:
        printed = done.stdout + done.stderr
        places = re.findall(rf'File "{re.escape(str(page))}", line (\d+)', printed)
        where = f"{page.name}:{places[-1]}" if places else page.name
        pytest.fail(f"{where}: {printed.strip().splitlines()[-1]}\n\n{printed}", pytrace=False)


def make_targets(block: str) -> Iterator[str]:
    """Yield the targets of the `make` commands in a block of shell lines."""
    for command in re.split(r"\n|&&|\|\|?|;", re.sub(r"(?m)(^|\s)#.*", "", block)):
        words = command.removeprefix("$ ").split()
        while words and "=" in words[0]:  # NAME=value before the command
            del words[0]
        if words[:1] == ["make"]:
            yield from (word for word in words[1:] if "=" not in word and not word.startswith("-"))


def links(markdown: str) -> Iterator[str]:
    """Yield the targets of links and images that point into this repository."""
    for block in blocks(markdown):
        markdown = markdown.replace(block.text, "") if block.text else markdown
    prose = re.sub(r"(`+).+?\1", "", markdown)
    inline = re.findall(r"\]\(<?([^)\s>]+)", prose)
    defined = re.findall(r"(?m)^ {0,3}\[[^\]^]+\]:\s+<?(\S+?)>?\s*$", prose)
    html = re.findall(r'\b(?:src|srcset|href)="([^"\s]+)', prose)
    for target in [*inline, *defined, *html]:
        if not re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.IGNORECASE):
            yield unquote(target)


def anchors(markdown: str) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    for block in blocks(markdown):
        markdown = markdown.replace(block.text, "") if block.text else markdown
    titles = re.findall(r"(?m)^#+ (.+)$", markdown)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether the file of a link exists and, if it is a page, has the heading that the link names."""
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    if not anchor or file.suffix != ".md" or not file.exists():
        return file.exists()
    return anchor in anchors(file.read_text(encoding="utf-8"))


@every_page
def test_the_python_of_the_page_runs(page, tmp_path):
    run(page, tmp_path)


@every_page
def test_the_make_targets_of_the_page_exist(page):
    known = re.findall(r"(?m)^([\w.-]+)\s*:(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    shell = {"console", "sh", "bash", "shell"}
    named = {
        target
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in shell
        for target in make_targets(block.text)
    }
    assert named <= {*known}


@every_page
def test_the_links_of_the_page_lead_somewhere(page):
    targets = links(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not leads_somewhere(page, target)] == []


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(dedent(text), encoding="utf-8")
    return page


def test_blocks_share_one_namespace_and_the_scratch_folder(tmp_path):
    page = write(
        tmp_path,
        """
        ```python
        from dataclasses import dataclass
        @dataclass
        class Point:
            x: "int"
        ```
        Then, in a list:

        -   text

            ```python
            open("made.txt", "w").write(f"{Point(3)} {__name__}")
            ```

        ```text
        not python
        ```
        """,
    )
    run(page, tmp_path)
    assert (tmp_path / "made.txt").read_text() == "Point(x=3) __main__"


@pytest.mark.parametrize(("line", "error"), [("1 / 0", "ZeroDivisionError"), ("1 +", "SyntaxError")])
def test_a_failing_block_is_reported_with_page_and_line(tmp_path, line, error):
    page = write(tmp_path, f"# Title\n\n```python\nx = 1\n```\n\n~~~python\nx = 2\n{line}\n~~~\n")
    with pytest.raises(pytest.fail.Exception, match=rf"^page.md:9: {error}"):
        run(page, tmp_path)


def test_make_targets_are_read_from_commands_only():
    block = """
    $ THREADS=1 make -j2 demo PYTHON=python3.12
    cd st3 && make test lint  # make nothing
    make: done
    echo make no
    """
    assert list(make_targets(dedent(block))) == ["demo", "test", "lint"]


def test_links_into_the_repository_are_read_and_others_left_alone():
    text = """
    [a](docs/a.md#part) ![b](<b.svg>) [c](https://c.org/d.md) [d](#part) [e](mail:to)
    `[f](f.md)` <img src="g.png"> [h][h]

    ```text
    [i](i.md)
    ```

    [h]: h%20h.md
    """
    assert list(links(dedent(text))) == ["docs/a.md#part", "b.svg", "#part", "h h.md", "g.png"]


def test_a_link_to_a_heading_that_is_not_there_leads_nowhere(tmp_path):
    page = write(
        tmp_path,
        """
        # Title

        ```text
        # no heading
        ```

        ## `code`, ONNX & torch.export
        """,
    )
    found = ["page.md", "page.md#title", "#code-onnx--torchexport"]
    assert all(leads_somewhere(page, target) for target in found)
    missing = ["other.md", "other.md#title", "#no-heading", "page.md#other"]
    assert not any(leads_somewhere(page, target) for target in missing)
