"""Every door takes the same bodies and records the same text, or refuses them by name."""

import asyncio
import json
import random
import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from click.testing import CliRunner
from hostile_bodies import BODIES, NOT_AS_VALUE, Body, Doors, amount, app_on, take
from postgres_servers import database, emptied

from arriero import Entry, InvalidInput, TaskFailed, connect
from arriero.cli.main import commands
from arriero.client.session import load_task

MODULE = "hostile_bodies:app"
REFUSED_BY_SQL = "22023"
PATIENCE = 60.0

Door = Callable[[Doors, Body, str, str | None], Awaitable[None]]


class Refused(Exception):
    """What a door said."""


# --- doors
async def by_python(app: Doors, body: Body, task_id: str, convoy: str | None = None) -> None:
    try:
        await app.submit(take(body.value), task_id=task_id, convoy=convoy)
    except InvalidInput as error:
        raise Refused(str(error)) from error


async def by_sync(app: Doors, body: Body, task_id: str, convoy: str | None = None) -> None:
    other = app_on(app.given)

    def submit() -> None:
        with other.sync as front:
            front.submit(take(body.value), task_id=task_id, convoy=convoy)

    try:
        await asyncio.to_thread(submit)
    except InvalidInput as error:
        raise Refused(str(error)) from error


async def by_ledger(app: Doors, body: Body, task_id: str, convoy: str | None = None) -> None:
    try:
        entry = Entry(take(body.value), task_id=task_id, convoy=convoy)
        await app.submit_ledger(f"ledger {uuid.uuid4()}", [entry])
    except InvalidInput as error:
        raise Refused(str(error)) from error


async def joined(app: Doors, body: Body, task_id: str, convoy: str | None = None) -> None:
    is_file = app.given.startswith("sqlite:")
    connection: Any = connect(app.given) if is_file else psycopg.connect(app.given)
    with closing(connection):
        if isinstance(connection, sqlite3.Connection):
            connection.execute("BEGIN IMMEDIATE")
        try:
            await app.submit(take(body.value), task_id=task_id, convoy=convoy, connection=connection)
        except InvalidInput as error:
            raise Refused(str(error)) from error
        connection.commit()


async def by_command(app: Doors, body: Body, task_id: str, convoy: str | None = None) -> None:
    options = ["--arguments", "-", "--task-id", task_id, "--store", app.given]
    options += [] if convoy is None else ["--convoy", convoy]
    done = await asyncio.to_thread(CliRunner().invoke, commands, ["submit", MODULE, "take", *options], input=body.text)
    if done.exit_code in (2, 3):
        (line,) = done.stderr.splitlines()
        raise Refused(line)
    assert done.exit_code == 0, done


async def by_sql(app: Doors, body: Body, task_id: str, convoy: str | None = None) -> None:
    statement = "SELECT arriero.submit('take', %s, task_id => %s, convoy => %s)"
    try:
        with psycopg.connect(app.given) as connection:
            connection.execute(statement, (body.text, task_id, convoy))
    except psycopg.errors.UniqueViolation as error:
        raise Refused(error.diag.message_primary) from error
    except psycopg.Error as error:
        assert error.sqlstate == REFUSED_BY_SQL, error
        assert error.diag.message_hint
        raise Refused(error.diag.message_primary) from error


DOORS: dict[str, Door] = {
    "python": by_python,
    "sync": by_sync,
    "ledger": by_ledger,
    "joined": joined,
    "command line": by_command,
    "sql": by_sql,
}
TEXT_DOORS = ("command line", "sql")


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'doors.db'}"
    return emptied(database(request.param))


async def recorded(app: Doors, task_id: str) -> str:
    return (await load_task(app.session, task_id)).arguments


async def made_known(url: str) -> None:
    """By a process that has the code: from then on SQL knows the workflows."""
    async with app_on(url).running():
        pass


PLACES = [("sqlite", name) for name in DOORS if name != "sql"] + [(16, name) for name in DOORS]
PLACES += [(15, "sql"), (18, "sql")]


@pytest.mark.parametrize(("url", "door"), PLACES, indirect=["url"])
async def test_every_door_records_the_same_text_of_a_body_or_refuses_it_by_name(url: str, door: str) -> None:
    await made_known(url)
    wrong = {}
    async with app_on(url) as app:
        for name, body in BODIES.items():
            if body.value is NOT_AS_VALUE and door not in TEXT_DOORS:
                continue
            try:
                await DOORS[door](app, body, name, None)
                found = await recorded(app, name)
                if found != body.kept:
                    wrong[name] = f"recorded as {found[:200]}"
            except Refused as refused:
                said = str(refused)
                if body.kept is not None or not any(part in said for part in body.named):
                    wrong[name] = f"refused: {said[:200]}"
    assert wrong == {}


SAME = ["100", "100.0", "1e2", "1.00E+2"]
ALSO_SAME = [
    ("-0.0", "0"),
    ("1.5e300", "15e299"),
    ("1e22", "10.0e21"),
    ("0.1", "0.1000000000000000055511151231257827"),
    ("5e-324", "4.9406564584124654e-324"),
    ('{"a": 1, "b": [2.0]}', '{"b": [2], "a": 1.0}'),
    ('"\\u00e9"', '"é"'),
]
OTHERS = [
    ("1", "true"),
    ("0", "false"),
    ("0", "null"),
    ('"1"', "1"),
    ("9007199254740993", "9007199254740992.0"),
    ("10000000000000000000000", "1e22"),
    ("0.1", "0.10000000000000002"),
    ("[1, 2]", "[2, 1]"),
    ('{"a": null}', "{}"),
]


@pytest.mark.parametrize("url", ["sqlite", 16], indirect=True)
async def test_what_means_the_same_to_python_is_the_same_body_at_every_pair_of_doors(url: str) -> None:
    import msgspec

    await made_known(url)
    doors = [name for name in DOORS if name != "sql" or not url.startswith("sqlite")]
    pairs = [*combinations(SAME, 2), *ALSO_SAME]
    wrong = []
    async with app_on(url) as app:
        for one, other in [*pairs, *((b, a) for a, b in pairs), *OTHERS, *((b, a) for a, b in OTHERS)]:
            is_same = (one, other) in pairs or (other, one) in pairs
            for first, second in zip(doors, doors[1:] + doors[:1], strict=True):
                task_id = f"{one} by {first}, then {other} by {second}"
                bodies = [Body(f'{{"value": {text}}}', msgspec.json.decode(text)) for text in (one, other)]
                await DOORS[first](app, bodies[0], task_id, None)
                kept = await recorded(app, task_id)
                try:
                    await DOORS[second](app, bodies[1], task_id, None)
                    answer = True
                except Refused as refused:
                    answer = False
                    assert "exists with another body" in str(refused)
                if answer != is_same or await recorded(app, task_id) != kept:
                    wrong.append(task_id)
    assert wrong == []


# --- a life through all doors, and what must be kept of it
def meaning(value: Any) -> Any:
    """A value of JSON so that two are equal where they are the same body: 2 and 2.0 are, 1 and true are not."""
    match value:
        case bool() | None | str():
            return (type(value).__name__, value)
        case float() if value.is_integer():
            return int(value)
        case list():
            return tuple(map(meaning, value))
        case dict():
            return frozenset((key, meaning(item)) for key, item in value.items())
        case number:
            return number


class Kept(NamedTuple):
    """What the first submission of an id has left."""

    text: str
    convoy: str | None

    def says(self, body: Body, convoy: str | None) -> str:
        """The refusal of another submission under that id; empty: it is the same."""
        assert body.kept is not None
        if meaning(json.loads(body.kept)) != meaning(json.loads(self.text)):
            return "exists with another body"
        return "" if convoy == self.convoy else "exists with another convoy"


@pytest.mark.parametrize("url", ["sqlite", 16], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
async def test_bodies_ids_and_keys_drawn_at_random_are_judged_alike_at_every_door(url: str, seed: int) -> None:
    draw = random.Random(seed)
    doors = [name for name in DOORS if name != "sql" or not url.startswith("sqlite")]
    names = [name for name, body in BODIES.items() if len(body.text) < 10_000]
    kept: dict[str, Kept] = {}
    await made_known(url)
    async with app_on(url) as app:
        for number in range(250):
            door, name = draw.choice(doors), draw.choice(names)
            body = BODIES[name]
            if body.value is NOT_AS_VALUE and door not in TEXT_DOORS:
                continue
            task_id = draw.choice([*kept, f"new {number}"]) if draw.random() < 0.7 else f"new {number}"
            known = kept.get(task_id)
            convoy = draw.choice([None, "k1", f"key {number}", *([known.convoy] * 3 if known else [])])
            expected = "refused" if body.kept is None else "" if known is None else known.says(body, convoy)
            try:
                await DOORS[door](app, body, task_id, convoy)
                answer = ""
            except Refused as refused:
                answer = "refused" if body.kept is None else str(refused)
            assert (expected in answer) and bool(expected) == bool(answer), (
                number,
                door,
                name,
                task_id,
                convoy,
                answer,
            )
            if not answer:
                assert body.kept is not None
                kept.setdefault(task_id, Kept(body.kept, convoy))
        assert await app.tasks().count() == len(kept)
        for task_id, first in kept.items():
            assert await recorded(app, task_id) == first.text
            assert (await load_task(app.session, task_id)).task.convoy_no is None or first.convoy is not None
        keys = {first.convoy for first in kept.values()} - {None}
        assert {convoy.key async for convoy in app.convoys()} == keys  # what was refused left no key behind


@pytest.mark.parametrize("url", [16], indirect=True)
async def test_a_number_of_another_spelling_by_sql_is_the_typed_one_of_python(url: str) -> None:
    await made_known(url)
    async with app_on(url) as app:
        for text, value in (("100", 100.0), ("1e2", 100), ("1.5e300", 1.5e300), ("-0.0", -0.0), ("0.10", 0.1)):
            for sql_first in (True, False):
                task_id = f"{text} {sql_first}"
                with psycopg.connect(url) as connection:
                    if not sql_first:
                        await app.submit(amount(value), task_id=task_id)
                    arguments = (f'{{"value": {text}}}', task_id)
                    connection.execute("SELECT arriero.submit('amount', %s, task_id => %s)", arguments)
                    connection.commit()
                    await app.submit(amount(value), task_id=task_id)
        assert await app.tasks().count() == 10


@pytest.mark.parametrize("url", [16], indirect=True)
async def test_bodies_that_only_sql_took_before_are_answered_as_others_and_break_nothing_beside_them(url: str) -> None:
    """As release 0.4.0 recorded them: what jsonb made of 1e5000, and 3,000 levels."""
    await made_known(url)
    texts = {"digits": f'{{"value": 1{"0" * 5000}}}', "deep": f'{{"value": {"[" * 3000}{"]" * 3000}}}'}
    async with app_on(url) as app:
        with psycopg.connect(url, autocommit=True) as connection:
            for task_id, text in texts.items():
                await app.submit(take("old"), task_id=task_id)
                changes = "task_no = (SELECT task_no FROM arriero.task WHERE task_id = %s)"
                connection.execute(f"UPDATE arriero.body SET arguments = %s WHERE {changes}", (text, task_id))
                connection.execute(f"UPDATE arriero.task SET body_hash = repeat('0', 64) WHERE {changes}", (task_id,))
        for task_id in texts:
            known = app.submit(take(1), task_id=task_id)
            beside = [app.submit(take(n), task_id=f"beside {task_id} {n}") for n in range(10)]
            answers = await asyncio.gather(known, *beside, return_exceptions=True)
            assert isinstance(answers[0], InvalidInput)
            assert "exists with another body" in str(answers[0])
            assert not any(isinstance(answer, BaseException) for answer in answers[1:])
            with psycopg.connect(url) as connection, pytest.raises(InvalidInput, match="another body"):
                await app.submit(take(1), task_id=task_id, connection=connection)


# --- what only the code knows
UNFIT = {
    "missing": ("{}", "missing value"),
    "unknown": ('{"value": 1, "other": 2}', "other"),
    "of another type": ('{"value": "many"}', "Expected `float`, got `str`"),
}


@pytest.mark.parametrize("url", [16], indirect=True)
async def test_arguments_that_no_signature_takes_are_refused_where_the_code_is_and_held_where_it_is_not(
    url: str,
) -> None:
    app = app_on(url)
    async with app.running():
        for name, (text, named) in UNFIT.items():
            options = ["--arguments", text, "--store", url]
            done = await asyncio.to_thread(CliRunner().invoke, commands, ["submit", MODULE, "amount", *options])
            assert (done.exit_code, named in done.stderr) == (2, True), done.stderr
            with psycopg.connect(url) as connection:
                connection.execute("SELECT arriero.submit('amount', %s, task_id => %s)", (text, name))
            with pytest.raises(TaskFailed, match=named) as failed:
                await app.task(name).result(PATIENCE)
            assert failed.value.code == "refused_arguments"
            assert "the arguments do not fit the workflow's signature: workflow amount" in failed.value.reason
            told = await asyncio.to_thread(CliRunner().invoke, commands, ["task", "explain", name, "--store", url])
            assert "disagrees" not in told.stdout
            assert "--arguments JSON --reason TEXT" in told.stdout
        mended = ["--arguments", '{"value": 2}', "--reason", "a slip", "--app", MODULE, "--store", url]
        done = await asyncio.to_thread(CliRunner().invoke, commands, ["task", "resubmit", "missing", *mended])
        assert done.exit_code == 0, done.stderr
        assert await app.task("missing", amount).result(PATIENCE) == 2
        await app.task("unknown").resubmit(by="ana", reason="a slip", arguments={"value": 3})
        assert await app.task("unknown", amount).result(PATIENCE) == 3
        await app.task("of another type").compensate(by="ana", reason="not wanted any more")
        with pytest.raises(TaskFailed, match="not wanted any more") as closed:
            await app.task("of another type").result(PATIENCE)
        assert closed.value.state == "compensated"
        with psycopg.connect(url) as connection:  # what was submitted is still what names the same task
            connection.execute("SELECT arriero.submit('amount', %s, task_id => 'missing')", ("{}",))
    with pytest.raises(InvalidInput, match="missing value"):
        amount()  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="no parameter 'other'"):
        amount(1, other=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="Expected `float`, got `str`"):
        amount("many")  # type: ignore[arg-type]
