"""The hash chain of a history: one link per commit and task."""

import hashlib

START = ""  # the head of a history that has no link yet


def link_hash(previous: str, task_no: int, link: int, at: int, actor: str, events: str) -> str:
    """Hash of one link.

    Args:
        previous: hash of the link before, START for the first.
        events: JSON text exactly as stored.
    Returns: 32 hexadecimal digits.
    """
    body = f"{previous}|{task_no}|{link}|{at}|{actor}|{events}"
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def payload_hash(text: str | None) -> str | None:
    """Short hash of a payload, so that a history shows equality without showing data; None for none."""
    return None if text is None else hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
