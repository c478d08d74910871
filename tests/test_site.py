"""The documentation as a site: it builds without a warning, and every page works in a browser."""

import pickle
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from docutils import nodes
from tests.browser import open_browser, serve
from tests.processes import run_python

import st3
import st3.engine

ROOT = Path(__file__).parents[1]
ROOMS = (st3, st3.methods, st3.ramps, st3.allocations, st3.engine)
NARROW = 360  # pixels, a small telephone


def build(folder: Path, builder: str, *options: str) -> Path:
    """Build the site as `make docs` does and return the folder of its pages."""
    out = folder / builder
    words = [
        "-q",
        "-W",
        "--keep-going",
        "-c",
        "docs",
        "-b",
        builder,
        "-d",
        folder / "trees",
        *options,
        ".",
        out,
    ]
    done = run_python("import sys; from sphinx.cmd.build import main; sys.exit(main())", *words, folder=ROOT)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """All pages as Sphinx understands them: links are resolved, nothing is written, no notebook runs."""
    folder = tmp_path_factory.mktemp("site")
    build(folder, "dummy", "-D", "nb_execution_mode=off")
    return folder / "trees"


def test_the_site_builds_without_a_warning(trees):
    """Warnings are errors: a page outside the table of contents, a broken link or anchor, an unreadable docstring."""
    pages = {path.relative_to(trees).as_posix() for path in trees.rglob("*.doctree")}
    assert {"docs/index.doctree", "ARCHITECTURE.doctree", "docs/methods/st3.doctree"} <= pages


def test_every_picture_has_an_alternative_text(trees):
    silent = []
    for path in trees.rglob("*.doctree"):
        with path.open("rb") as file:
            found = pickle.load(file).findall(nodes.image)
        silent += [f"{path.stem}: {image['uri']}" for image in found if not image.get("alt", "").strip()]
    assert silent == []


def test_every_public_name_is_in_the_reference(trees):
    with (trees / "environment.pickle").open("rb") as file:
        described = pickle.load(file).domaindata["py"]["objects"]
    public = {f"{room.__name__}.{name}" for room in ROOMS for name in room.__all__}
    rooms = {room.__name__ for room in ROOMS} | {"st3.errors"}  # the errors have a page of their own
    assert public - rooms - set(described) == set()


slow = pytest.mark.slow
builds = pytest.mark.timeout(900)  # the first test of these waits for the notebooks


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, notebooks run."""
    return build(tmp_path_factory.mktemp("site"), "html")


def pages(site: Path) -> list[str]:
    return sorted(
        path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "genindex.html"
    )


class Pictures(HTMLParser):
    """The pictures of a page: file -> alternative text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.found[dict(attrs)["src"]] = dict(attrs).get("alt") or ""


@slow
@builds
def test_the_whole_site_has_drawn_notebooks_and_names_no_folder_of_this_machine(site):
    texts = {page: (site / page).read_text(encoding="utf-8") for page in pages(site)}
    pictures = {page: Pictures(text).found for page, text in texts.items()}
    assert [page for page, found in pictures.items() if not all(found.values())] == []
    assert len(pictures["docs/notebooks/st3.html"]) == 5
    local = (str(ROOT), str(Path.home()), "ipykernel_")
    assert [page for page, text in texts.items() if any(folder in text for folder in local)] == []


@slow
@builds
def test_every_page_works_in_a_browser(site):
    """No complaint in the console, nothing asked of another machine, no sideways scrolling on a narrow screen."""
    faults = []
    with serve(site) as address, open_browser() as browser:
        browser.resize(NARROW)
        for page in pages(site):
            browser.look(f"{address}/{page}")
            faults += [f"{page} asks for {url}" for url in browser.requests() if is_elsewhere(url, address)]
            faults += [f"{page}: {complaint}" for complaint in browser.complaints()]
            width = browser.ask("document.documentElement.scrollWidth")
            faults += [f"{page} is {width} pixels wide"] if width > NARROW else []
    assert faults == []


def is_elsewhere(url: str, address: str) -> bool:
    return url.startswith(("http", "ws")) and not url.startswith(address)


@slow
@builds
def test_the_search_finds_names_and_words(site):
    with serve(site) as address, open_browser() as browser:
        for word, page in {
            "save_sparse": "docs/reference/api.html",
            "collapse": "docs/howto/collapse.html",
        }.items():
            browser.look(f"{address}/search.html?q={word}")
            found = browser.wait("[...document.querySelectorAll('.search a')].map(link => link.pathname)")
            assert f"/{page}" in found, word


@slow
@builds
def test_a_page_turns_dark_where_that_is_preferred(site):
    shade = "getComputedStyle(document.body).backgroundColor"
    with serve(site) as address, open_browser() as browser:
        browser.look(f"{address}/docs/index.html")
        brightness = {}
        for dark in (False, True):
            browser.darken(dark=dark)
            brightness[dark] = sum(map(int, re.findall(r"\d+", browser.ask(shade))[:3]))
    assert brightness[False] > 600
    assert brightness[True] < 150
