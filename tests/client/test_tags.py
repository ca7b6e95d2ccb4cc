"""Tags through Python: given at a submission, seen by the code, changed by an operator, shown wherever a task is."""

import json
import logging
from typing import Any

import pytest
from shop_world import WHO, Shop, check, held, opened

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    Permanent,
    Supervision,
    TaskFailed,
    VerbRefused,
    testing,
    workflow,
)
from arriero.core.alerts import build_alert, format_alert_line
from arriero.json_log import AttemptFilter, JsonFormatter

shop = Agent("shop", breaker=None)
seen: list[dict[str, str]] = []
lines: list[str] = []


class Keep(logging.Handler):
    """Keeps what the formatter makes of each record."""

    def emit(self, record: logging.LogRecord) -> None:
        lines.append(self.format(record))


@shop.step(supervision=Supervision(attempts=1, then="hold"))
async def charge(attempt: Attempt, fails: bool) -> str:
    logging.getLogger("users").warning("charging")
    if fails:
        raise Permanent("declined")
    return "receipt"


@workflow
async def buy(fails: bool = False) -> dict[str, str]:
    seen.append(arriero.tags())
    await arriero.sleep(10)
    await charge(fails)
    seen.append(arriero.tags())
    return arriero.tags()


def make_app() -> App:
    return App("shop", agents=[shop], workflows=[buy])


async def test_the_code_sees_the_tags_of_its_submission_in_every_replay_whatever_an_operator_changes() -> None:
    seen.clear()
    async with testing.running(make_app()) as world:
        task = await world.app.submit(buy(), tags={"tenant": "acme", "plan": "gold"})
        await world.clock.advance(5)
        await task.change_tags({"tenant": "globex"}, ["plan"], **WHO)  # the task is freed: its code is replayed
        await world.clock.advance(6)
        assert await task.result() == {"plan": "gold", "tenant": "acme"}
        assert len(seen) >= 3
        assert all(tags == {"plan": "gold", "tenant": "acme"} for tags in seen)
        assert (await task.view()).tags == {"tenant": "globex"}
        check(world)


async def test_a_resubmitted_task_continues_with_the_tags_that_its_code_has_seen() -> None:
    async with testing.running(make_app()) as world:
        task = await world.app.submit(buy(True), tags={"tenant": "acme"})
        await world.clock.advance(11)
        await held(task)
        await task.change_tags({"tenant": "globex"}, **WHO)
        seen.clear()
        await task.answer(step="charge", result="receipt", **WHO)
        await task.resubmit(**WHO)
        assert await task.result() == {"tenant": "acme"}
        assert all(tags == {"tenant": "acme"} for tags in seen)


async def test_tags_outside_of_a_workflow_are_an_error() -> None:
    with pytest.raises(arriero.ArrieroError, match=r"arriero\.tags works only inside a workflow"):
        arriero.tags()


async def test_a_filter_and_a_verb_for_many_take_tags() -> None:
    books = Shop()
    async with opened(books) as world:
        app = world.app
        for name, tags in (("a", {"tenant": "acme"}), ("b", {"tenant": "globex"}), ("c", {"tenant": "acme"})):
            await app.submit(books.order("good", 1), task_id=name, tags=tags, delay=60)
        acme = app.tasks(tags={"tenant": "acme"})
        assert [view.id async for view in acme] == ["a", "c"]
        assert [view.id for view in await acme.newest(1)] == ["c"]
        foretold = await acme.change_tags({"tenant": "initech"}, **WHO, dry_run=True)
        assert (foretold.done, await acme.count()) == (("a", "c"), 2)
        assert (await acme.change_tags({"tenant": "initech"}, **WHO)).done == ("a", "c")
        assert (await acme.count(), await app.tasks(tags={"tenant": "initech"}).count()) == (0, 2)
        assert (await app.tasks(tags={"tenant": "initech"}).pause(**WHO)).done == ("a", "c")
        with pytest.raises(InvalidInput, match="tag of all tasks there are"):
            await app.tasks().change_tags({"x": "1"}, **WHO)
        with pytest.raises(InvalidInput, match="tags is empty"):
            app.tasks(tags={})
        with pytest.raises(InvalidInput, match="'<b>' is not the name of a tag"):
            app.tasks(tags={"<b>": "1"})


async def test_a_change_that_no_task_may_have_is_refused_and_says_why() -> None:
    async with testing.running(make_app()) as world:
        task = await world.app.submit(buy(), tags={f"t{number}": "x" for number in range(20)}, delay=60)
        with pytest.raises(VerbRefused, match="would have 21 tags; a task has at most 20"):
            await task.change_tags({"more": "x"}, **WHO)
        await task.change_tags({"more": "x"}, ["t0", "unknown"], **WHO)
        assert len((await task.view()).tags) == 20
        for put, remove in (({}, ()), ({"a": 1}, ()), ({}, ["old-"])):
            with pytest.raises(InvalidInput):
                await task.change_tags(put, remove, **WHO)  # type: ignore[arg-type]


async def test_a_repeated_submission_with_other_tags_is_the_same_task_and_the_first_tags_count() -> None:
    async with testing.running(make_app()) as world:
        first = await world.app.submit(buy(), task_id="one", tags={"tenant": "acme"}, delay=60)
        again = await world.app.submit(buy(), task_id="one", tags={"tenant": "globex"}, delay=60)
        assert (first.created, again.created) == (True, False)
        assert (await again.view()).tags == {"tenant": "acme"}


async def test_entries_of_a_ledger_have_tags_and_bad_ones_are_reported_with_their_line() -> None:
    async with testing.running(make_app()) as world:
        app = world.app
        good = [arriero.Entry(buy(), tags={"tenant": "acme"}), arriero.Entry(buy())]
        assert (await app.submit_ledger("day", good)).accepted == 2
        assert (await app.submit_ledger("day", good)).accepted == 0
        assert [view.id async for view in app.tasks(tags={"tenant": "acme"})] == ["day:1"]
        with pytest.raises(InvalidInput, match="known with another content"):
            await app.submit_ledger("day", [arriero.Entry(buy(), tags={"tenant": "globex"}), good[1]])
        bad: Any = arriero.Entry(buy(), tags={"tenant": ["x"] * 1_000})
        with pytest.raises(InvalidInput, match="line 1: tag 'tenant' has the value"):
            await app.submit_ledger("other", [bad])


async def test_an_alert_a_log_line_and_a_span_name_the_tags() -> None:
    lines.clear()
    handler = Keep()
    handler.addFilter(AttemptFilter())
    handler.setFormatter(JsonFormatter())
    users = logging.getLogger("users")
    users.addHandler(handler)
    try:
        async with testing.running(make_app()) as world:
            for tags in ({"tenant": "<b>acme</b>"}, None):
                task = await world.app.submit(buy(True), tags=tags)
                await world.clock.advance(11)
                with pytest.raises(TaskFailed):
                    await task.result()
            first, second = [build_alert(row, "store") for row in await world.app.session.store.alerts()]
    finally:
        users.removeHandler(handler)
    assert (first.tags, second.tags) == ({"tenant": "<b>acme</b>"}, {})
    assert "tags tenant=<b>acme</b>" in format_alert_line(first)
    assert "tags tenant" not in format_alert_line(second)
    assert [json.loads(line).get("tags") for line in lines] == [{"tenant": "<b>acme</b>"}, None]
