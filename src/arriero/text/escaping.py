"""Text from outside as a terminal, a log or a shell may take it.

What a service, a row or an operator wrote may move a cursor, turn the reading direction or print nothing at all. ``escaped``
writes such characters as ``\\x1b`` or ``\\u202e``; ``shell_word`` writes a word of a command so that it is the same word
again when it is typed, and looks like no other.
"""

import re
import shlex

MASK = "***"
# Up to the last @ before a query: a password may hold what it should not. Then the same for one that holds even a "?".
# A file's path is left alone.
_USERS = (r"(?<=://)(?!/)[^?#]*@", r"(?<=://)[^/:?#@]*:[^@]*@")
# Also of the driver's other form, ``host=... password='...'``. A value of listen_url is another URL.
_SECRET_NAME = r"\w*(?:pass|secret|scram)\w*\s*="
_PASSWORD = re.compile(rf"""({_SECRET_NAME}\s*|\blisten_url=)('[^']*'|[^\s&#]+)""", re.IGNORECASE)
_HOLDS_PASSWORD = re.compile(rf"://[^@/\s]*:[^@]*@|{_SECRET_NAME}", re.IGNORECASE)
_WEBHOOK = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/?#\\\s]*@)?(?P<host>[^/?#@\\\s]+)(?P<rest>[^@]*)",
    re.IGNORECASE | re.DOTALL,
)


def mask_url(url: str) -> str:
    """The URL without users and passwords. It need not be a right one: what is refused is shown, too."""
    for user in _USERS:
        url = re.sub(user, f"{MASK}@", url)
    return _PASSWORD.sub(rf"\g<1>{MASK}", url)


def holds_password(text: str) -> bool:
    """Returns True if a text, perhaps a store's URL, may hold a password."""
    from urllib.parse import unquote  # it loads a lot, which only this pays for

    return _HOLDS_PASSWORD.search(text) is not None or _HOLDS_PASSWORD.search(unquote(text)) is not None


def mask_webhook(url: str) -> str:
    """The URL's host alone: path and query are the credential of many services. It need not be a right one."""
    found = _WEBHOOK.fullmatch(url)
    if found is None:  # where its host ends cannot be known
        return MASK if url else url
    user = f"{MASK}@" if found["user"] else ""
    rest = f"/{MASK}" if found["rest"].strip("/") else found["rest"]
    return f"{found['scheme']}{user}{found['host']}{rest}"


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
