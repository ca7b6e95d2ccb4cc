"""Text from outside as a terminal, a log or a shell may take it.

What a service, a row or a person wrote may move a cursor, turn the reading direction or print nothing at all. ``escaped``
writes such characters as ``\\x1b`` or ``\\u202e``; ``shell_word`` writes a word of a command so that it is the same word
again when it is typed, and looks like no other.
"""

import re
import shlex

# Drawn as nothing, or as empty space, although str.isprintable says yes: fillers, joiners, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_JSON_DELETE = "\x7f"  # the only ASCII control character that JSON lets stand


def escape_text(text: str, keep: str = "") -> str:
    """The text with every character escaped that cannot be seen as itself; those of ``keep`` stay."""
    if text.isprintable() and (text.isascii() or not _UNSEEN.search(text)):
        return text
    return "".join(one if one in keep or _is_seen(one) else ascii(one)[1:-1] for one in text)


def one_line(text: str) -> str:
    """A text as one line that moves no cursor and every terminal can write."""
    return escape_text(text.strip().replace("\n", " ").replace("\t", " "))


def escape_json(encoded: str, *, ascii_only: bool = False) -> str:
    """JSON of the same value, in which characters that cannot be seen as themselves are escaped as \\uXXXX.

    ``ascii_only``: all other characters outside of ASCII are escaped, too.
    """
    if encoded.isascii() and _JSON_DELETE not in encoded:
        return encoded
    return "".join(
        one if one == "\n" or (_is_seen(one) and (not ascii_only or one.isascii())) else _json_escape(one)
        for one in encoded
    )


def shell_word(text: str) -> str:
    """A word for the command line, quoted where a shell needs it; nothing in it can be taken for another character.

    Of two ids that print alike each is written in its own way: what is not plain ASCII stands there as its bytes, in the
    form ``$'...'`` of bash, zsh and ksh.
    """
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_byte, text.encode('utf-8', 'surrogateescape')))}'"


def shell_argument(text: str) -> str:
    """The last word of a command, that no command line takes for an option."""
    return f"{'-- ' if text.startswith('-') else ''}{shell_word(text)}"


def _is_seen(character: str) -> bool:
    return character.isprintable() and not _UNSEEN.match(character)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _shell_byte(byte: int) -> str:
    if byte in b"\\'":
        return f"\\{byte:c}"
    return f"{byte:c}" if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
