"""The base of all events of a history."""

import hashlib
from typing import Any

import msgspec

from ..model import Instant
from ..text.format import is_process_name, shorten_process_name

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
    BLAKE2, so that link carries SHA-256, distinguished by its 64 digits.
    """
    if len(given) == SQL_HASH_LENGTH:
        return given == hashlib.sha256(_content(previous, task_no, link, at, actor, events)).hexdigest()
    return given == link_hash(previous, task_no, link, at, actor, events)


def _content(previous: str, task_no: int, link: int, at: int, actor: str, events: str) -> bytes:
    return f"{previous}|{task_no}|{link}|{at}|{actor}|{events}".encode()


def payload_hash(text: str | None) -> str | None:
    """Return a short hash of a payload, so that a history shows equality without showing data; None for none."""
    return None if text is None else hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


UNREADABLE_EVENT = "unreadable"  # in place of the events of a commit; no commit holds an event of that name
Hash = str | None  # of a payload, see ``events.base.payload_hash``


class HistoryNames:
    """Names of a history's steps, attempts and processes, as its events so far have introduced them.

    Attributes:
        actor: who wrote the event that is described.
        began_at: when the incarnation began.
        steps: how each step is spoken of, by its ordinal.
        attempts: the number of each step's last attempt, by its ordinal.
    """

    def __init__(self, actor: str = "") -> None:
        self.actor = actor
        self.began_at = Instant(0)
        self.steps: dict[int, str] = {}
        self.attempts: dict[int, int] = {}
        self._processes: dict[str, int] = {}  # numbers of processes by their names, once an event had both
        self._last_writer = ""

    def name_process(self, number: int) -> str:
        """Name the process that writes the event by its number, and by its name the first time."""
        if not is_process_name(self.actor) or self._processes.get(self.actor) == number:
            self._last_writer = self.actor
            return f"process {number}"
        self._processes[self.actor] = number
        self._last_writer = self.actor
        return f"process {number} ({shorten_process_name(self.actor)})"

    def name_writer(self) -> str:
        """Name the process that wrote an event if another one wrote the one before; operators are named in the sentence."""
        if not is_process_name(self.actor) or self._last_writer == self.actor:
            return ""
        self._last_writer = self.actor
        return f" (by process {self._processes.get(self.actor) or shorten_process_name(self.actor)})"

    def name_step(self, ordinal: int) -> str:
        """Name a step: ``step charge``, ``the undo of charge``; by its ordinal if its opening was never seen."""
        return self.steps.get(ordinal, f"step number {ordinal}")

    def label_step(self, ordinal: int) -> str:
        """Return the bare label, for lists of compensations."""
        return self.name_step(ordinal).removeprefix("the undo of ")


class HistoryEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type"):
    """One event of a history, encoded as a JSON object whose first field is its ``type``.

    The text of the events is hashed, so two things must never change: the order of a class's fields, and which of them are
    left out. A field with a default is left out when it has that default. ``UNSET`` is the default of a field that may be
    ``null`` as well, and of a field that earlier releases did not write.

    A class is named as its type in CamelCase: ``TaskClaimed`` is ``task.claimed``. ``Event`` stands behind the name where
    another class of arriero has it.
    """

    @property
    def type(self) -> str:
        """The type as it stands in the JSON."""
        return str(self.__struct_config__.tag)

    def describe(self, names: HistoryNames) -> str:
        """Describe the event to operators in one sentence. Raises ValueError, msgspec.ValidationError - a field is damaged."""
        return show_fields(self.type, msgspec.json.decode(msgspec.json.encode(self)))


class UnreadableEvent(msgspec.Struct, frozen=True):
    """An event as it was found that this release cannot read.

    Args:
        type: as it stands there; empty where there is none.
        fields: all of it, with its type.
        error: what is wrong with it; empty for a type that this release does not know.
    """

    type: str
    fields: dict[str, Any]
    error: str = ""

    def describe(self, names: HistoryNames) -> str:
        """Show the event as it stands there."""
        if self.type == UNREADABLE_EVENT:
            link = self.fields["link"]
            return f"link {link} of its history is damaged and cannot be read; `arriero check` judges an export of it"
        return show_fields(self.type, self.fields)


def show_fields(kind: str, fields: dict[str, Any]) -> str:
    """Show an event that has no sentence: its type, and its other fields as JSON."""
    rest = {name: value for name, value in fields.items() if name != "type"}
    return f"{kind} {msgspec.json.encode(rest).decode()}"


def describe_event(event: HistoryEvent | UnreadableEvent, names: HistoryNames) -> str:
    """Describe an event in one sentence. One whose fields are not as they should be is shown as it stands."""
    try:
        return event.describe(names)
    except (KeyError, ValueError, OverflowError, msgspec.ValidationError):
        return HistoryEvent.describe(event, names) if isinstance(event, HistoryEvent) else str(event.fields)


def join_parts(*parts: str) -> str:
    """Join the parts of a sentence that are not empty, each after a comma."""
    return "".join(f", {part}" for part in parts if part)
