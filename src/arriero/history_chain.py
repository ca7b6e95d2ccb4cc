"""The hash chain of a history: one link per commit and task."""

import hashlib

START = ""  # the head of a history that has no link yet
SQL_HASH_LENGTH = 64  # digits of a hash that PostgreSQL made


def link_hash(previous: str, task_no: int, link: int, at: int, actor: str, events: str) -> str:
    """Return the hash of one link.

    Args:
        previous: hash of the link before, START for the first.
        events: JSON text exactly as stored.
    Returns: 32 hexadecimal digits.
    """
    return hashlib.blake2b(_content(previous, task_no, link, at, actor, events), digest_size=16).hexdigest()


def fits_link(given: str, previous: str, task_no: int, link: int, at: int, actor: str, events: str) -> bool:
    """Returns True if ``given`` is the hash of a link; the other arguments are those of ``link_hash``.

    PostgreSQL itself hashes the first link of a task that was submitted inside a caller's transaction or by SQL. It has no
    BLAKE2, so that link carries SHA-256, told apart by its 64 digits.
    """
    if len(given) == SQL_HASH_LENGTH:
        return given == hashlib.sha256(_content(previous, task_no, link, at, actor, events)).hexdigest()
    return given == link_hash(previous, task_no, link, at, actor, events)


def _content(previous: str, task_no: int, link: int, at: int, actor: str, events: str) -> bytes:
    return f"{previous}|{task_no}|{link}|{at}|{actor}|{events}".encode()


def payload_hash(text: str | None) -> str | None:
    """Return a short hash of a payload, so that a history shows equality without showing data; None for none."""
    return None if text is None else hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
