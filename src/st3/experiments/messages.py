"""Messages of other programs, as part of a sentence of ours."""

import re

__all__ = ["passed_on"]

COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# torch explains at length how to load what it has just refused; what it refused comes last.
UNPICKLER = re.compile(r"WeightsUnpickler error: (.*?)(?: Please use | Check the documentation |$)")
MOST = 300  # characters


def passed_on(error: BaseException) -> str:
    """Return what the error says on one line of moderate length, without colours and without advice to trust a file.

    >>> passed_on(ValueError("\\x1b[1mtoo\\x1b[0m\\n  long"))
    'too long'
    """
    text = " ".join(COLOURS.sub("", str(error)).split())
    if found := UNPICKLER.search(text):
        text = found[1].strip()
    text = text or type(error).__name__
    return text if len(text) <= MOST else f"{text[:MOST]} ..."
