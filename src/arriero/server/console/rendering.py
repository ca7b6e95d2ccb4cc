"""The templates, and how values are written in them. Jinja escapes each value; what is made of several parts is escaped here."""

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...model import StepState, TaskState
from ...text.escaping import escape_json, escape_text
from ...text.format import format_duration
from ..parameters import write_id

FOLDER = Path(__file__).parent / "templates"
LINE_LENGTH_MAX = 240  # characters of a reason in a list
PAYLOAD_LENGTH_MAX = 20_000  # characters of a payload that a page shows
# One tone and one symbol for each state, so that it is known without its colour.
STATES: Mapping[str, tuple[str, str]] = {
    TaskState.PENDING: ("wait", "○"),
    TaskState.PROCESSING: ("run", "▶"),
    TaskState.PROCESSED: ("good", "✓"),
    TaskState.COMPENSATING: ("undo", "◀"),
    TaskState.COMPENSATED: ("undone", "↩"),
    TaskState.HELD: ("bad", "!"),
    StepState.PLANNED: ("wait", "·"),
    StepState.RUNNING: ("run", "▶"),
    StepState.COMPLETED: ("good", "✓"),
    StepState.FAILED: ("bad", "✗"),
    StepState.WITHDRAWN: ("undone", "⊘"),
}


@functools.cache
def get_environment() -> Environment:
    """Get the environment of the templates."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "shown": write_text,
        "text": escape_lines,
        "prose": write_prose,
        "first_line": write_first_line,
        "time": write_time,
        "duration": format_duration,
        "payload": write_payload,
        "state": write_state,
        "segment": write_id,
        "query": write_query,
        "count": lambda number: f"{number:,}",
    }
    return environment


def write_text(text: str) -> Markup:
    """Write a name or an id: characters that cannot be seen are escaped, and its direction does not change what stands beside it."""
    return Markup("<bdi>{}</bdi>").format(escape_text(text))


def escape_lines(text: str) -> str:
    """Escape in a text of several lines what cannot be seen."""
    return escape_text(text, "\n\t")


def write_prose(text: str) -> Markup:
    """Write a sentence; what stands in it between backticks, one or two, is a command or a name."""
    parts = escape_lines(text).replace("``", "`").split("`")
    if len(parts) % 2 == 0:  # a backtick without its other one is a character like others
        return Markup("{}").format("`".join(parts))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def write_first_line(text: str | None) -> str:
    """Write the first line of a text, as a row of a list shows it; the page of the thing has all of it."""
    lines = (text or "").strip().splitlines()
    if not lines:
        return ""
    is_whole = len(lines) == 1 and len(lines[0]) <= LINE_LENGTH_MAX
    return escape_text(lines[0][:LINE_LENGTH_MAX]) + ("" if is_whole else " …")


def write_time(value: datetime | None, form: str = "short") -> Markup:
    """Write an instant: a script shows it in the zone of the reader, with the store's clock beside it.

    Args:
        form: ``short``: the time of today, or the day; ``long``: day and time.
    """
    if value is None:
        return Markup("")
    utc = value.astimezone(UTC)
    plain = utc.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" data-form="{}" title="{}Z">{}Z</time>').format(
        utc.isoformat(timespec="milliseconds"), form, plain, plain
    )


def write_payload(value: Any) -> str:
    """Write a payload as indented JSON; of one that is long, its beginning."""
    raw = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    if len(raw) > PAYLOAD_LENGTH_MAX:
        return escape_json(raw[:PAYLOAD_LENGTH_MAX].decode("utf-8", "ignore")) + " …"
    return escape_json(msgspec.json.format(raw, indent=2).decode())


def write_state(state: str) -> Markup:
    """Write a state as a badge with a symbol."""
    tone, symbol = STATES.get(state, ("wait", ""))
    return Markup('<span class="state {}"><span aria-hidden="true">{}</span> {}</span>').format(tone, symbol, state)


def write_query(values: Mapping[str, Any], **changes: Any) -> str:
    """Write the query of a link; a change with None leaves a parameter out."""
    changed = {**values, **changes}
    pairs = [(name, value) for name, value in changed.items() if value not in (None, "", ())]
    return "?" + urlencode(pairs, doseq=True) if pairs else ""
