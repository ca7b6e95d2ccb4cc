"""Logs as JSON: one object a line whatever a text holds, and the attempt whose code wrote it."""

import io
import json
import logging
import logging.handlers
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from arriero import Agent, App, Attempt, Permanent, TaskFailed, workflow
from arriero.json_log import AttemptFilter, JsonFormatter

users = logging.getLogger("users.own")
clerk = Agent("clerk")


@clerk.step(effect_free=True)
async def check(attempt: Attempt, secret: str) -> str:
    users.info("checked")
    if secret == "bad":
        raise Permanent("declined")
    return secret


@clerk.step(effect_free=True)
def stamp(attempt: Attempt, secret: str) -> str:
    users.info("stamped")
    return secret


@workflow
async def handle(secret: str) -> str:
    return await stamp(await check(secret))


class Log:
    """What a handler has written."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.addFilter(AttemptFilter(lambda: "host-1-abc"))
        self.handler.setFormatter(JsonFormatter())

    def lines(self) -> list[dict[str, Any]]:
        text = self.stream.getvalue()
        assert text == "" or text.endswith("\n")
        return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    loggers = (users, logging.getLogger("arriero"))
    for logger in loggers:
        logger.addHandler(log.handler)
        logger.setLevel(logging.INFO)
    yield log
    for logger in loggers:
        logger.removeHandler(log.handler)
        logger.setLevel(logging.NOTSET)


def test_a_line_says_when_what_and_who(log: Log) -> None:
    users.warning("%d parcels", 3)
    (line,) = log.lines()
    assert line.pop("time").endswith("Z")
    assert line == {"level": "WARNING", "logger": "users.own", "message": "3 parcels", "process": "host-1-abc"}


@pytest.mark.parametrize(
    "text",
    ['two\nlines "quoted"', "\r\n{}", "\x1b[2J\x00\x7f\x85\u2028\u2029", "caf\u00e9 \U0001f600", "\udc80"],
    ids=["lines", "return", "controls", "letters", "surrogate"],
)
def test_no_text_ends_the_line_or_moves_a_cursor(text: str) -> None:
    line = JsonFormatter().format(logging.LogRecord(text, logging.WARNING, __file__, 1, text, (), None))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == json.loads(line)["logger"] == text


def test_an_exception_is_a_field(log: Log) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        users.exception("it failed")
    (line,) = log.lines()
    assert line["message"] == "it failed"
    assert line["exception"].endswith("ValueError: first\nsecond")
    assert "Traceback" in line["exception"]


def test_a_message_whose_arguments_do_not_fit_is_still_a_line() -> None:
    record = logging.LogRecord("users", logging.WARNING, __file__, 1, "%d parcels", ("three",), None)
    assert json.loads(JsonFormatter().format(record))["message"] == "%d parcels"


async def test_a_users_own_logger_in_an_attempt_tells_its_task_step_and_attempt_also_in_a_thread(
    log: Log, tmp_path: Path
) -> None:
    app = App("office", agents=[clerk], workflows=[handle], store=f"sqlite:///{tmp_path}/store.db")
    async with app.running():
        await (await app.submit(handle("the secret"), task_id="1001")).result()
    found = [(line["message"], line["task"], line["step"], line["attempt"]) for line in log.lines()]
    assert found == [("checked", "1001", "check", 1), ("stamped", "1001", "stamp", 1)]
    assert not any("trace_id" in line for line in log.lines())
    assert "the secret" not in log.stream.getvalue()


async def test_where_tasks_are_traced_a_line_has_the_attempts_span(log: Log, tmp_path: Path) -> None:
    app = App("office", agents=[clerk], workflows=[handle], store=f"sqlite:///{tmp_path}/store.db")
    app.trace(TracerProvider())
    async with app.running():
        await (await app.submit(handle("x"))).result()
    checked, stamped = log.lines()
    assert checked["trace_id"] == stamped["trace_id"]
    assert checked["span_id"] != stamped["span_id"]
    assert (len(checked["trace_id"]), len(checked["span_id"])) == (32, 16)


async def test_arrieros_own_lines_hold_no_payload(log: Log, tmp_path: Path) -> None:
    app = App("office", agents=[clerk], workflows=[handle], store=f"sqlite:///{tmp_path}/store.db")
    async with app.running():
        with pytest.raises(TaskFailed):
            await (await app.submit(handle("bad"), task_id="1001")).result()
    lines = [line for line in log.lines() if line["logger"] == "arriero"]
    assert lines
    assert not any('"bad"' in line["message"] for line in lines)


async def test_a_filter_before_a_queue_keeps_what_is_true_where_the_record_is_made(tmp_path: Path) -> None:
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(records)  # type: ignore[arg-type]
    handler.addFilter(AttemptFilter())
    users.addHandler(handler)
    users.setLevel(logging.INFO)
    app = App("office", agents=[clerk], workflows=[handle], store=f"sqlite:///{tmp_path}/store.db")
    try:
        async with app.running():
            await (await app.submit(handle("x"), task_id="1001")).result()
    finally:
        users.removeHandler(handler)
        users.setLevel(logging.NOTSET)
    line = json.loads(JsonFormatter().format(records.get()))
    assert (line["task"], line["step"]) == ("1001", "check")
