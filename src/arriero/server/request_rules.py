"""Rules that refuse a request before its route sees it: host, origin and size; and notes about it for the log and the metrics."""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
from starlette.types import Scope

from ..operations.problems import INVALID_REQUEST
from .problems import CROSS_ORIGIN, HEADER_REPEATED, HEADERS_TOO_LARGE, MISDIRECTED, URI_TOO_LONG, Problem

_KEY = "arriero.note"  # shared by all copies of the scope


class RequestNote:
    """``operation``: its name; ``caller``: who sends it; ``problem``: the code of its refusal. Empty: not known, or none.

    ``is_page``: the operation is a page of the console.
    """

    def __init__(self) -> None:
        self.operation = ""
        self.is_page = False
        self.caller = ""
        self.problem = ""


def attach_note(scope: Scope) -> tuple[Scope, RequestNote]:
    """Return the scope of a request with a note in it, and the note. A note that is there already stays."""
    note = get_note(scope)
    return {**scope, _KEY: note}, note


def get_note(scope: Scope) -> RequestNote:
    """Return the note of a request; a new one if nobody wants it."""
    found = scope.get(_KEY)
    return found if isinstance(found, RequestNote) else RequestNote()


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # they change nothing
TARGET_BYTES_MAX = 8_192  # two ids of 255 characters, percent-encoded, fit in
HEADERS_MAX = 64
HEADER_BYTES_MAX = 16_384
SINGLE_HEADERS = (b"idempotency-key", b"last-event-id", b"content-type")


class RequestRules(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that each request must meet.

    Args:
        hosts: names by which this server is known, in lower case and without port; ``*`` stands for any name.
        origins: of pages of others that may change something, like ``https://desk.example.com``.
    """

    hosts: frozenset[str] = frozenset(LOOPBACK_NAMES)
    origins: frozenset[str] = frozenset()


def parse_host(value: str) -> str:
    """Parse the name out of a header Host; empty: it has none, or is written in a way that no server should guess about."""
    try:
        parts = urlsplit(f"//{value}")
        _ = parts.port
    except ValueError:
        return ""
    odd = parts.username is not None or parts.path or parts.query or parts.fragment or not value.isascii()
    # Python takes the name in brackets, whatever follows them: of `[::1].evil.example` another server may be meant.
    odd = odd or ("]" in value and not value.endswith("]") and not value.partition("]")[2].startswith(":"))
    return "" if odd or not value.isprintable() or " " in value else (parts.hostname or "").rstrip(".")


def judge_request(
    rules: RequestRules, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> Problem | None:
    """Judge a request before anything of it is done. None: it may continue.

    Args:
        target: path and query as they came.
        headers: in lower case, as they came.
    """
    if len(target) > TARGET_BYTES_MAX:
        return Problem(URI_TOO_LONG, f"path and query have {len(target):,} bytes; the limit is {TARGET_BYTES_MAX:,}")
    size = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
        return Problem(
            HEADERS_TOO_LARGE,
            f"{len(headers)} headers with {size:,} bytes; the limits are {HEADERS_MAX} and {HEADER_BYTES_MAX:,}",
        )
    return (
        _judge_repeats(headers)
        or _judge_length(headers)
        or _judge_host(rules, headers)
        or _judge_origin(rules, method, headers)
    )


def list_values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The values of a header, one for each time that it was sent."""
    return [value.decode("latin-1") for key, value in headers if key == name]


def _judge_repeats(headers: Sequence[tuple[bytes, bytes]]) -> Problem | None:
    """Refuse a header that counts once and came twice: servers and proxies differ about which value counts."""
    names = [name for name, _ in headers]
    twice = next((name for name in SINGLE_HEADERS if names.count(name) > 1), None)
    if twice is None:
        return None
    shown = twice.decode().title()
    return Problem(HEADER_REPEATED, f"the header {shown} was sent {names.count(twice)} times; send it once")


def _judge_length(headers: Sequence[tuple[bytes, bytes]]) -> Problem | None:
    """A proxy that counts by the other header would take the end of this body for the next request, of another caller."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
        detail = "the length of the body is given twice, by Content-Length and by Transfer-Encoding; send one of them"
        return Problem(INVALID_REQUEST, detail, headers={"Connection": "close"})
    return None


def _judge_host(rules: RequestRules, headers: Sequence[tuple[bytes, bytes]]) -> Problem | None:
    """A name that is not ours comes from a page that has its own name point at this machine (DNS rebinding)."""
    given = list_values(headers, b"host")
    host = parse_host(given[0]) if len(given) == 1 else ""
    if host and (host in rules.hosts or ANY_HOST in rules.hosts):
        return None
    return Problem(MISDIRECTED, f"this server is not known as {host!r}" if host else "one header Host is needed")


def _judge_origin(rules: RequestRules, method: str, headers: Sequence[tuple[bytes, bytes]]) -> Problem | None:
    """Browsers name the page that sends a request. A page of this server has the same host and port as the request."""
    # A GET with the id of the last event acknowledges messages.
    if method in SAFE_METHODS and not list_values(headers, b"last-event-id"):
        return None
    origins = list_values(headers, b"origin")
    host = list_values(headers, b"host")[0]
    for origin in origins:
        if origin not in rules.origins and origin.partition("://")[2].lower() != host.lower():
            return Problem(CROSS_ORIGIN, f"a page of {origin!r} may change nothing here")
    if not origins and "cross-site" in list_values(headers, b"sec-fetch-site"):
        return Problem(CROSS_ORIGIN, "a page of another site may change nothing here")
    return None
