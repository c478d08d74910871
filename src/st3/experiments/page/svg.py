"""SVG elements as text, with every string escaped."""

import re

from markupsafe import Markup, escape

__all__ = ["fit", "group", "tag", "text", "text_width"]

# Characters that XML, and so a standalone SVG file, cannot hold in any form.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """Return an element; `class_` becomes class and `stroke_width` stroke-width, attributes that are None are left out.

    >>> tag("rect", x=1.0, y=2.345, class_="bar")
    Markup('<rect x="1" y="2.35" class="bar"/>')
    >>> tag("text", "a < b")
    Markup('<text>a &lt; b</text>')
    """
    # Plain strings: every part is escaped already, and Markup.format is slow.
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(clean(child) for child in children)
    return Markup(f"<{name}{written}>{inside}</{name}>" if children else f"<{name}{written}/>")


def text(words: str, x: float, y: float, class_: str | None = None, **attributes: object) -> Markup:
    return tag("text", words, x=x, y=y, class_=class_, **attributes)


def group(parts: list[Markup], class_: str | None = None, **attributes: object) -> Markup:
    return tag("g", *parts, class_=class_, **attributes)


def clean(words: str) -> Markup:
    """Escape `words` unless they are markup already; what XML cannot hold becomes U+FFFD."""
    return words if isinstance(words, Markup) else escape(FORBIDDEN.sub("\ufffd", words))


def text_width(words: str, size: float = 11) -> float:
    """Return about how wide `words` are in a sans-serif font of that size; too much rather than too little."""
    return 0.58 * size * len(words)


def fit(words: str, most: int) -> str:
    """Shorten `words` in the middle, where names of layers differ least.

    >>> fit("features.denseblock1.conv", 12)
    'featur…1.conv'
    """
    if len(words) <= most + 1:
        return words
    return f"{words[: most // 2]}…{words[-(most - most // 2) :]}"


def _value(value: object) -> Markup:
    if isinstance(value, float):
        return Markup(f"{value:.2f}".rstrip("0").rstrip(".") or "0")
    return clean(value if isinstance(value, str) else str(value))
