"""Sphinx's settings: `make docs` builds the site into build/docs.

The source folder is the repository, not docs/: so a page links to ../ARCHITECTURE.md or ../results/... by the same
path on the site and on a code host. Nothing is loaded from outside. What happens to a page on its way is in pages.py.
"""

import os
import sys
from pathlib import Path

os.environ.pop("MPLBACKEND", None)  # with a backend of the reader's own, notebooks would show no pictures
sys.path.insert(0, str(Path(__file__).parent))

import pages

import st3

project = "st3"
author = copyright = "the st3 authors"
version = release = st3.__version__
root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "results/studies/*/*/README.md"]
exclude_patterns = ["README.md", ".*", "build", "src", "tests", "runs", "**/__pycache__"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 4
smartquotes = False  # quoted text may be code

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "imported-members": True}

html_theme = "furo"
html_title = "st3"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_copy_source = False
html_additional_pages = {"index": "to_first_page.html"}
templates_path = ["_templates"]
copybutton_exclude = ".linenos, .gp, .go"


def setup(app):
    """Connect the steps of pages.py."""
    app.connect("source-read", pages.complete)
    app.connect("doctree-read", pages.unlink_folders)
    app.connect("autodoc-process-signature", pages.tidy_signature)
    app.connect("autodoc-process-docstring", pages.docstring_to_rst)
