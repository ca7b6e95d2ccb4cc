"""Log records as JSON, one object a line, with the attempt whose code wrote them.

For programs that set up logging themselves::

    handler = logging.StreamHandler()
    handler.addFilter(AttemptFilter())
    handler.setFormatter(JsonFormatter())

``arriero run --log-format json`` does that. A line holds what the record says and which attempt said it: never arguments, results
or other payloads, unless a message has them.
"""

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .declare.attempt import current_try
from .model.tags import read_tags

# Names of attributes that the filter adds to records, in the order of the line.
CONTEXT = (
    "arriero_task",
    "arriero_step",
    "arriero_attempt",
    "arriero_tags",
    "arriero_trace_id",
    "arriero_span_id",
    "arriero_process",
)


class AttemptFilter(logging.Filter):
    """Notes in each record the task, step and attempt whose code writes it, its span, and the process.

    It runs where the record is made, so it belongs to the first handler, also before a ``QueueHandler``. It refuses no record.

    Args:
        process: returns the name of this process start; empty: it has none now.
    """

    def __init__(self, process: Callable[[], str] = str) -> None:
        super().__init__()
        self._process = process

    def filter(self, record: logging.LogRecord) -> bool:
        step_try = current_try.get()
        if step_try is not None:
            attempt = step_try.attempt
            record.arriero_task, record.arriero_step = attempt.task_id, attempt.step
            record.arriero_attempt = attempt.number
            if step_try.tags is not None:
                record.arriero_tags = read_tags(step_try.tags)
        _note_span(record)
        if process := self._process():
            record.arriero_process = process
        return True


def _note_span(record: logging.LogRecord) -> None:
    """Note the current span, if the program has loaded OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_current_span"):
        return
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        record.arriero_trace_id, record.arriero_span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of ASCII: whatever a text holds, it is escaped and cannot end the line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _format_message(record),
        }
        for name in CONTEXT:
            if (value := getattr(record, name, None)) is not None:
                line[name.removeprefix("arriero_")] = value
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


def _format_message(record: logging.LogRecord) -> str:
    """A message whose arguments do not fit it is a bug of the one who wrote it, and must not cost the line."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)
