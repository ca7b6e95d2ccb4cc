"""Text and tables fitted to the width of a terminal. No word is broken that fits a line, and no command in backticks.

What is to be copied, like an id, a key or a command, must stand on one line: of a table that is too narrow for its ids,
each row becomes a block of some lines, in which the title of a column stands before each cell.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest

GAP = "  "
PROSE_MIN = 24  # columns for sentences are not made narrower than this for their long words
PROSE = frozenset(("reason", "says", "waits for", "arguments", "result", "value"))

_WORDS = re.compile(r"(?:`[^`]*`|\(arriero [^)]*\)|\S)+")  # a command in backticks or alone in brackets is one word


def display_width(text: str) -> int:
    """Count the places that a text takes on a terminal; many characters of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int, *, first: str = "", hanging: int = 0) -> list[str]:
    """A text as lines of that width at most, broken between words.

    Args:
        first: what the first line begins with, as it is.
        hanging: places by which the lines after the first are indented.
    Returns: at least one line. A word that is longer than a line stands on a line of its own, whole.
    """
    lines: list[str] = []
    line, has_word = first, False
    for word in _WORDS.findall(text):
        if has_word and display_width(line) + 1 + display_width(word) > width:
            lines.append(line)
            line, has_word = " " * hanging, False
        line = f"{line} {word}" if has_word else f"{line}{word}"
        has_word = True
    return [*lines, line]


def fold(text: str, width: int) -> list[str]:
    """The same for a cell of a table, where also a word that is too long must be broken."""
    lines: list[str] = []
    for line in wrap(text, width):
        rest = line
        while display_width(rest) > width:
            at = next(n for n in range(len(rest), 0, -1) if display_width(rest[:n]) <= width or n == 1)
            lines.append(rest[:at])
            rest = rest[at:]
        lines.append(rest)
    return lines


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows under their columns, or as blocks where the terminal is too narrow for that.

    Args:
        columns: titles; those in ``PROSE`` hold sentences, which may be broken anywhere between words.
        rows: cells without line breaks, as many as there are columns.
        width: of the terminal, in places.
    Returns: lines.
    """
    everything = [columns, *rows]
    natural = [max(display_width(row[at]) for row in everything) for at in range(len(columns))]
    whole = [_minimum_width(title, at, everything, whole=True) for at, title in enumerate(columns)]
    by_words = [_minimum_width(title, at, everything, whole=False) for at, title in enumerate(columns)]
    room = width - len(GAP) * (len(columns) - 1)
    for least in (natural, whole, by_words):
        if sum(least) <= room:
            return _format_columns(columns, rows, _distribute_width(least, natural, room))
    return _format_blocks(columns, rows, width)


def _minimum_width(title: str, at: int, rows: Sequence[Sequence[str]], *, whole: bool) -> int:
    """The least width of a column. ``whole``: its cells are not broken at all, unless they are sentences."""
    if whole and title not in PROSE:
        return max(display_width(row[at]) for row in rows)
    longest = max((display_width(word) for row in rows for word in _WORDS.findall(row[at])), default=0)
    return min(longest, PROSE_MIN) if title in PROSE else longest


def _distribute_width(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Widths of the columns: what is left over goes to those that want more, from the left."""
    widths = list(least)
    left = room - sum(widths)
    for at, wanted in enumerate(natural):
        more = max(min(wanted - widths[at], left), 0)
        widths[at] += more
        left -= more
    return widths


def _format_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines: list[str] = []
    for row in (columns, *rows):
        cells = [fold(cell, max(width, 1)) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            padded = (text + " " * (width - display_width(text)) for text, width in zip(line, widths, strict=True))
            lines.append(GAP.join(padded).rstrip())
    return lines


def _format_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Each row as some lines of titles and cells; a line is begun anew before a cell is broken."""
    lines: list[str] = []
    for row in rows:
        line = ""
        for title, cell in zip(columns, row, strict=True):
            pair = f"{title} {cell}".strip() if cell else ""
            if line.strip() and pair and display_width(line) + len(GAP) + display_width(pair) > width:
                lines.append(line)
                line = GAP
            if pair:
                joined = line + GAP if line.strip() else line
                *done, line = wrap(pair, width, first=joined, hanging=2 * len(GAP))
                lines += done
        lines.append(line)
    return lines
