"""What happens to a page between its file and Sphinx, so that the files stay plain Markdown.

- The lists of links in index.md are the site's table of contents. Another page names the pages below it by a comment,
  `<!-- pages: methods/* -->`.
- `<!-- generated: commands -->` is replaced by what reference.py writes.
- Links to folders of the repository become plain text: a site has no listing of a folder.
- Docstrings, which are Markdown in this project, become reStructuredText for autodoc.
"""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import reference
from docutils import nodes
from method_pages import remark

CONTENTS = "docs/index"
ARGUMENT = re.compile(r"(\w+) {2,}(\S.*(?:\n {6,}\S.*)*)(?:\n|$)")  # in columns: name, meaning
PATTERN = "str | Pattern[str] | type[Module] | Callable[[str, Module], bool]"


def complete(app, docname, source):
    """Add what the file leaves out: the table of contents, and text that is made from the code."""
    text = source[0]
    if docname.startswith("results/"):
        text = "---\norphan: true\n---\n" + text
    if docname == CONTENTS:
        text += "".join(toctree(entries, caption) for caption, entries in contents(text))
    text = re.sub(r"(?m)^<!-- pages: (\S+) -->$", lambda mark: toctree([mark[1]]), text)
    source[0] = re.sub(r"(?m)^<!-- generated: (\S+)(.*?) -->$", _generate, text)


def contents(text):
    """Return the sections of a page that hold lists of pages: title -> paths without their endings."""
    found = []
    for section in re.split(r"(?m)^## ", text)[1:]:
        entries = re.findall(r"(?m)^- \[[^\]]+\]\(([^):]+)\.md\)", section)
        if entries:
            found.append((section.splitlines()[0], entries))
    return found


def toctree(entries, caption=""):
    """Return a hidden table of contents."""
    options = [":hidden:", ":glob:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "", "```{toctree}", *options, "", *entries, "```", ""])


def _generate(mark):
    return getattr(reference, mark[1])(*mark[2].split())


def unlink_folders(app, doctree):
    """Replace links to folders of the repository by their text."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(nodes.Element)):
        target = link.get("reftarget") or link.get("refuri") or ""
        if target and ":" not in target and (here / target).is_dir():
            link.replace_self(link.children)


def tidy_signature(app, what, name, thing, options, signature, returned):
    """Write `Patterns` for what chooses layers."""
    if signature:
        return signature.replace(f"{PATTERN} | Iterable[{PATTERN}]", "Patterns"), returned
    return None


def docstring_to_rst(app, what, name, thing, options, lines):
    """Rewrite a docstring, paragraph by paragraph; add the settings of a dataclass with the comments beside them."""
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    if is_dataclass(thing):
        settings = {field.name: remark(thing, field.name) for field in fields(thing)}
        paragraphs.append("".join(f"{name}  {meaning}\n" for name, meaning in settings.items() if meaning))
    lines[:] = [*"\n\n".join(map(_paragraph, filter(None, paragraphs))).splitlines(), ""]


def _paragraph(text):
    if text.startswith(">>>"):
        return text
    if all(line.startswith("    ") for line in text.splitlines()):
        return f"::\n\n{text}"
    text = re.sub(r"`([^`\n]+)`(s?)", r"``\1``\\ \2", text.replace("|", r"\|"))  # `Name`s is a plural
    if re.fullmatch(f"(?:{ARGUMENT.pattern})+", text):
        return ARGUMENT.sub(lambda found: f":param {found[1]}: {' '.join(found[2].split())}\n", text)
    return text
