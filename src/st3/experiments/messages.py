"""Messages of other libraries, quoted inside ours."""

import re

__all__ = ["quote_error"]

COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# torch explains at length how to load what it has just refused; what it has refused comes last.
UNPICKLER = re.compile(r"WeightsUnpickler error: (.*?)(?: Please use | Check the documentation |$)")
LONGEST = 300  # characters


def quote_error(error: BaseException) -> str:
    """Return the error's message on one line of moderate length, without colours or advice to trust a file.

    >>> quote_error(ValueError("\\x1b[1mtoo\\x1b[0m\\n  long"))
    'too long'
    """
    text = " ".join(COLOURS.sub("", str(error)).split())
    if found := UNPICKLER.search(text):
        text = found[1].strip()
    text = text or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
