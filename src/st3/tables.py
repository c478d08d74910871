"""Plain text: tables with aligned columns, and sizes in bytes."""

from collections.abc import Sequence

__all__ = ["size_text", "text_table"]


def text_table(head: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[int] = (0,)) -> str:
    """Return `rows` under `head` as aligned text; the columns in `left` are flush left, the others right.

    >>> print(text_table(["layer", "zeros"], [["conv1", 12], ["fc", 1024]]))
    layer  zeros
    conv1     12
    fc      1024
    """
    for number, row in enumerate(rows):
        if len(row) != len(head):
            raise ValueError(f"row {number} has {len(row)} cells under {len(head)} headings: {list(row)}")
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for row in cells:
        columns = enumerate(zip(row, widths, strict=True))
        line = "  ".join(cell.ljust(wide) if i in left else cell.rjust(wide) for i, (cell, wide) in columns)
        lines.append(line.rstrip())
    return "\n".join(lines)


def size_text(count: int) -> str:
    """Return a number of bytes as text.

    >>> size_text(999), size_text(98304), size_text(25_600_000)
    ('999 B', '98.3 kB', '25.6 MB')
    """
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, 3)
    return f"{count / 1000**power:.1f} {' kMG'[power]}B"
