"""SELECT arriero.submit(...): a task from any language, by plain SQL."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec
import psycopg
import pytest
from postgres_servers import USUAL, database, emptied
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb
from store_checks import broken_links, disagreements, history_violations

from arriero import Agent, App, Attempt, InvalidInput, Supervision, TaskFailed, workflow
from arriero.model.policies import SECONDS_MAX, TaskPolicy
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres.binaries import binaries_of

PATIENCE = 60.0

payments = Agent("payments")


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int
    due: date | None = None


@payments.step
async def charge(attempt: Attempt, order: Order) -> str:
    return f"charged {order.pieces} of {order.id}"


@workflow(complete_within=3_600.5, supervision=Supervision(attempts=2, then="hold"))
async def fulfil(order: Order, note: str = "none") -> str:
    return f"{await charge(order)}, {note}"


@workflow
async def other(order: Order, note: str = "none") -> None: ...


def shop(url: str) -> App:
    return App("shop", agents=[payments], workflows=[fulfil, other], store=url)


_made_known: list[str] = []  # what the process with the code wrote, as JSON: the same for every test


@pytest.fixture
async def url(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A store on which a process with the code has run once; at the end of every test its history is clean."""
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    found = emptied(database(kind="joined"))
    if not _made_known:
        async with shop(found).running():
            pass
        _made_known.extend(run(found, "SELECT row_to_json(w)::text FROM arriero.workflow AS w"))
        emptied(found)
    for row in _made_known:
        run(
            found, "INSERT INTO arriero.workflow SELECT * FROM json_populate_record(NULL::arriero.workflow, %s)", (row,)
        )
    yield found
    store = PostgresStore(found)
    await store.open()
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []
    await store.close()


def run(url: str, sql: str, parameters: Any = None) -> list[Any]:
    """What a client of any language would send; the first column."""
    with psycopg.connect(url, row_factory=scalar_row) as connection:
        done = connection.execute(sql.encode(), parameters)
        return done.fetchall() if done.description else []


def tasks(url: str) -> list[str]:
    return run(url, "SELECT task_id FROM arriero.task ORDER BY task_no")


SUBMIT = "SELECT arriero.submit('fulfil', %s, task_id => %s)"
BODY = '{"order": {"pieces": 2, "id": "größer \\"1\\" \'x\'"}}'


def test_a_process_with_the_code_makes_its_workflows_known(url: str) -> None:
    rows = run(url, "SELECT json_build_array(name, policy, complete_within) FROM arriero.workflow ORDER BY name")
    fulfilling = TaskPolicy(3_600.5, Supervision(attempts=2, then="hold"), undo_on_doubt="continue")
    plain = TaskPolicy(None, Supervision(), undo_on_doubt="continue")
    assert [row[::2] for row in rows] == [["fulfil", 3_600.5], ["other", None]]
    assert [msgspec.json.decode(row[1], type=TaskPolicy) for row in rows] == [fulfilling, plain]


async def test_a_process_that_runs_no_code_makes_nothing_known(url: str) -> None:
    emptied(url)
    async with shop(url).running(roles=["agents", "supervisor"]):
        pass
    assert run(url, "SELECT name FROM arriero.workflow") == []


async def test_a_task_submitted_by_sql_runs_to_its_end_and_its_submitter_is_told(url: str) -> None:
    app = shop(url)
    async with app.running():
        answered = run(
            url,
            "SELECT arriero.submit('fulfil', %s, task_id => 'a', priority => 9, delay_seconds => 0.01, reply_to => 'web')",
            (BODY,),
        )
        assert answered == ["a"]
        assert await app.task("a", fulfil).result(PATIENCE) == "charged 2 of größer \"1\" 'x', none"
        assert (await app.task("a").view()).priority == 9
        async with asyncio.timeout(PATIENCE):
            told = []
            async for status in app.replies("web"):
                told.append((status.task_id, status.kind))
                if len(told) == 3:
                    break
        assert told == [("a", "received"), ("a", "started"), ("a", "completed")]


async def test_the_policy_of_the_workflow_is_in_the_task_s_row(url: str) -> None:
    run(url, SUBMIT, (BODY, "sql"))
    async with shop(url) as app:
        await app.submit(fulfil(Order("1", 2)), task_id="python")
    policies = run(url, "SELECT policy FROM arriero.task")
    assert policies[0] == policies[1]
    assert run(url, "SELECT DISTINCT complete_by - submitted_at FROM arriero.task") == [3_600_500_000]


def test_without_an_id_each_submission_is_a_task_of_its_own(url: str) -> None:
    ids = [run(url, "SELECT arriero.submit('fulfil', %s)", (BODY,))[0] for _ in range(2)]
    assert tasks(url) == ids
    assert len(set(ids)) == 2
    assert run(url, "SELECT count(DISTINCT seed) FROM arriero.task WHERE seed >= 0") == [2]


def test_a_rollback_leaves_nothing_of_it(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(SUBMIT, (BODY, "a"))
        connection.rollback()
    assert tasks(url) == []


def test_psql_can_do_it_without_any_library_of_ours(url: str) -> None:
    sql = """SELECT arriero.submit('fulfil', '{"order": {"id": "1001", "pieces": 2}}', task_id => '1001')"""
    psql = binaries_of(USUAL) / "psql"
    if not psql.exists():
        pytest.skip("psql is not among the binaries; run: apt-get install postgresql-client")
    done = subprocess.run(
        [psql, url, "--no-psqlrc", "-At", "-c", sql], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout == "1001\n"
    assert tasks(url) == ["1001"]


# --- the same id again
async def test_the_same_arguments_in_another_order_are_the_same_task_whoever_submitted_first(url: str) -> None:
    order = Order("é", 2, date(2026, 1, 2))
    body = '{"note":"n", "order": {"pieces": 2.0, "due": "2026-01-02", "id": "\\u00e9"}}'
    async with shop(url) as app:
        await app.submit(fulfil(order, note="n"), task_id="python first")
        assert run(url, SUBMIT, (body, "python first")) == ["python first"]
        for _ in range(2):
            assert run(url, SUBMIT, (body, "sql first")) == ["sql first"]
        await app.submit(fulfil(order, note="n"), task_id="sql first")
        with psycopg.connect(url) as connection:
            await app.submit(fulfil(order, note="n"), task_id="sql first", connection=connection)
        assert tasks(url) == ["python first", "sql first"]
        for refused in (fulfil(order, note="m"), fulfil(order)):
            with pytest.raises(InvalidInput, match="'sql first' exists with another body"):
                await app.submit(refused, task_id="sql first")
            with (
                psycopg.connect(url) as connection,
                pytest.raises(InvalidInput, match="'sql first' exists with another body"),
            ):
                await app.submit(refused, task_id="sql first", connection=connection)
        with pytest.raises(InvalidInput, match="'sql first' exists with another workflow"):
            await app.submit(other(order, note="n"), task_id="sql first")
    assert tasks(url) == ["python first", "sql first"]


@pytest.mark.parametrize(
    ("workflow_name", "body", "what"), [("fulfil", '{"order": {}}', "body"), ("other", BODY, "workflow")]
)
@pytest.mark.parametrize("by_python", [True, False])
async def test_another_body_or_workflow_under_a_known_id_is_a_unique_violation(
    url: str, workflow_name: str, body: str, what: str, by_python: bool
) -> None:
    if by_python:
        async with shop(url) as app:
            await app.submit(fulfil(Order("größer \"1\" 'x'", 2)), task_id="a")
        assert msgspec.json.decode(run(url, "SELECT arguments FROM arriero.body")[0])["order"].pop("due", None) is None
    else:
        run(url, SUBMIT, (BODY, "a"))
    with pytest.raises(psycopg.errors.UniqueViolation, match=f"task 'a' exists with another {what}") as raised:
        run(url, f"SELECT arriero.submit('{workflow_name}', %s, task_id => 'a')", (body,))
    assert raised.value.diag.message_hint == "use another task_id, or submit the same again"
    assert tasks(url) == ["a"]


# --- how a call finds its function
SPELLED = '{"order": {"id": "1001", "pieces": 2}, "note": "a"}'
CALLS = {
    "a literal": (f"SELECT arriero.submit('fulfil', '{SPELLED}')", ()),
    "a parameter without a type": ("SELECT arriero.submit(%s, %s)", ("fulfil", SPELLED)),
    "text": ("SELECT arriero.submit(%s::text, %s::text)", ("fulfil", SPELLED)),
    "varchar": ("SELECT arriero.submit(%s::varchar, %s::varchar)", ("fulfil", SPELLED)),
    "jsonb": ("SELECT arriero.submit(%s, %s::jsonb)", ("fulfil", SPELLED)),
    "jsonb of psycopg": ("SELECT arriero.submit(%s, %s)", ("fulfil", Jsonb(msgspec.json.decode(SPELLED)))),
    "made as json": (
        "SELECT arriero.submit('fulfil', json_build_object('note', 'a', 'order', json_build_object('id', '1001', 'pieces', 2))::text)",
        (),
    ),
    "by name": ("SELECT arriero.submit(arguments => %s, workflow => %s, priority => 5)", (SPELLED, "fulfil")),
}


@pytest.mark.parametrize("version", [15, 16, 18])
def test_calls_with_texts_untyped_values_and_jsonb_are_taken_as_before(version: int) -> None:
    """Callers of release 0.4.0 sent untyped values or jsonb."""
    found = emptied(database(version, "joined"))
    run(
        found,
        "INSERT INTO arriero.workflow VALUES ('fulfil', %s, NULL)",
        (msgspec.json.encode(TaskPolicy(None, Supervision())).decode(),),
    )
    for sql, parameters in CALLS.values():
        run(found, sql, parameters)
    run(found, f"PREPARE submission AS SELECT arriero.submit($1, $2); EXECUTE submission('fulfil', '{SPELLED}')")
    kept = run(found, "SELECT arguments FROM arriero.body")
    assert kept == ['{"note":"a","order":{"id":"1001","pieces":2}}'] * (len(CALLS) + 1)


def test_what_jsonb_made_of_a_value_is_what_is_recorded(url: str) -> None:
    run(url, "SELECT arriero.submit('fulfil', %s::jsonb, task_id => 'a')", ('{"note": -0.0, "note": 1e2}',))
    assert run(url, "SELECT arguments FROM arriero.body") == ['{"note":100}']
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="nested more than 100 levels deep"):
        run(url, "SELECT arriero.submit('fulfil', %s::jsonb)", (f'{{"note": {"[" * 3000}{"]" * 3000}}}',))


# --- what is refused
WRONG = [
    ("'nope', '{}'", "workflow 'nope' is not known", "known are fulfil, other"),
    ("NULL, '{}'", "workflow NULL is not known", "arriero run MODULE:APP"),
    ("'fulfil', '[]'", "arguments are a JSON array, not a JSON object", "name each parameter"),
    ("'fulfil', '1'", "arguments are a JSON number", "name each parameter"),
    ("'fulfil', NULL", "arguments are null", "name each parameter"),
    ("'fulfil', jsonb_build_object('a', repeat('x', 1000000))", "arguments have 1000008 bytes", "pass its address"),
    ("'fulfil', '{}', task_id => ''", "task_id '' is not 1 to 255 characters", "shorter"),
    ("'fulfil', '{}', task_id => repeat('x', 256)", "task_id 'x+' is not 1 to 255 characters", "shorter"),
    ("'fulfil', '{}', task_id => E'a\\nb'", "without control characters", "shorter"),
    ("'fulfil', '{}', task_id => E'a\\u0085'", "without control characters", "shorter"),
    ("'fulfil', '{}', reply_to => ''", "reply_to '' is not 1 to 255 characters", "leave it out"),
    ("'fulfil', '{}', reply_to => E'\\u007f'", "reply_to .* without control characters", "leave it out"),
    ("'fulfil', '{}', priority => 10", "priority is 10", "use 0 to 9"),
    ("'fulfil', '{}', priority => -1", "priority is -1", "use 0 to 9"),
    ("'fulfil', '{}', priority => NULL", "priority is null", "use 0 to 9"),
    ("'fulfil', '{}', delay_seconds => -0.1", "delay_seconds is -0.1", "use 0 or more"),
    ("'fulfil', '{}', delay_seconds => 'NaN'", "delay_seconds is NaN", "use 0 or more"),
    ("'fulfil', '{}', delay_seconds => 'Infinity'", "delay_seconds is Infinity", "a century"),
    (f"'fulfil', '{{}}', delay_seconds => {SECONDS_MAX + 1}", "delay_seconds is 3162240001", "a century"),
    ("'fulfil', '{}', delay_seconds => NULL", "delay_seconds is null", "use 0 or more"),
]


@pytest.mark.parametrize(("arguments", "message", "hint"), WRONG, ids=[wrong[0][:60] for wrong in WRONG])
def test_what_python_refuses_is_refused_with_a_hint(url: str, arguments: str, message: str, hint: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message) as raised:
        run(url, f"SELECT arriero.submit({arguments})")
    assert hint in (raised.value.diag.message_hint or "")
    assert tasks(url) == []


@pytest.mark.parametrize("task_id", ["x" * 255, "\N{GRINNING FACE}" * 255, "a b", "\N{NO-BREAK SPACE}", "'; --", "%s"])
def test_an_id_that_python_takes_is_taken(url: str, task_id: str) -> None:
    assert run(url, SUBMIT, (BODY, task_id)) == [task_id]
    assert tasks(url) == [task_id]


@pytest.mark.parametrize("priority", range(10))
def test_every_priority_and_the_longest_delay_are_taken(url: str, priority: int) -> None:
    run(url, f"SELECT arriero.submit('fulfil', '{{}}', priority => {priority}, delay_seconds => {SECONDS_MAX})")
    assert run(url, "SELECT not_before - submitted_at FROM arriero.task") == [SECONDS_MAX * 1_000_000]
    assert run(url, "SELECT priority FROM arriero.task") == [priority]


UNFIT = {
    '{"order": {"id": "1", "pieces": "many"}}': "Expected `int`, got `str`",
    '{"order": {"id": "1"}}': "missing required field `pieces`",
    '{"order": {"id": "1", "pieces": 2}, "colour": 1}': "unknown field `colour`",
}
INCOMPLETE = {'{"note": "no order"}': "missing order", "{}": "missing order"}


@pytest.mark.parametrize(
    "bodies",
    [UNFIT, INCOMPLETE],
    ids=["of another type", "not there"],
)
async def test_arguments_that_do_not_fit_put_their_task_in_error_and_stop_nothing_else(
    url: str, bodies: dict[str, str]
) -> None:
    app = shop(url)
    async with app.running():
        for number, body in enumerate(bodies):
            run(url, SUBMIT, (body, f"bad {number}"))
            run(url, SUBMIT, (BODY, f"good {number}"))
        for number, reason in enumerate(bodies.values()):
            with pytest.raises(TaskFailed, match=reason):
                await app.task(f"bad {number}").result(PATIENCE)
            assert (await app.task(f"bad {number}").view()).state == "held"
            stored = run(url, "SELECT state FROM arriero.task WHERE task_id = %s", (f"bad {number}",))
            assert stored == ["error"]  # processes of release 0.4 select rows by this word
            assert (await app.task(f"good {number}", fulfil).result(PATIENCE)).startswith("charged 2")


# --- whose the task is
def known_to(url: str, *apps: str) -> None:
    """Each App has run here once, with a workflow of the name and a policy of its own."""
    for number, app in enumerate(apps):
        policy = msgspec.json.encode(TaskPolicy(10.0 + number, Supervision())).decode()
        row = ("fulfil", app, policy, 10.0 + number)
        run(url, "INSERT INTO arriero.app_workflow VALUES (%s, %s, %s, %s)", row)


async def app_of(url: str, task_id: str) -> tuple[str, str]:
    store = PostgresStore(url)
    await store.open()
    loaded = await store.find(task_id)
    await store.close()
    assert loaded is not None
    return loaded.task.app, loaded.task.policy


async def test_a_process_makes_known_whose_its_workflows_are(url: str) -> None:
    async with shop(url).running():
        pass
    assert run(url, "SELECT app || '.' || name FROM arriero.app_workflow ORDER BY name") == [
        "shop.fulfil",
        "shop.other",
    ]


async def test_a_task_is_of_the_only_app_that_has_its_workflow_under_that_app_s_policy(url: str) -> None:
    run(url, SUBMIT, (BODY, "before"))  # as long as nothing is known of any App
    known_to(url, "shop")
    run(url, SUBMIT, (BODY, "after"))
    assert [(await app_of(url, task_id))[0] for task_id in ("before", "after")] == ["", "shop"]
    assert msgspec.json.decode((await app_of(url, "after"))[1], type=TaskPolicy).complete_within == 10.0


@pytest.mark.parametrize("cast", ["", "::text", "::jsonb"])
async def test_of_several_apps_one_is_named(url: str, cast: str) -> None:
    known_to(url, "shop", "travel")
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match=r"workflow 'fulfil' is of several Apps: shop, travel"
    ) as told:
        run(url, f"SELECT arriero.submit('fulfil', %s{cast}, 'a')", (BODY,))
    assert "app => 'shop'" in str(told.value.diag.message_hint)
    assert run(url, f"SELECT arriero.submit('fulfil', %s{cast}, 'a', app => 'travel')", (BODY,)) == ["a"]
    app, policy = await app_of(url, "a")
    assert (app, msgspec.json.decode(policy, type=TaskPolicy).complete_within) == ("travel", 11.0)


@pytest.mark.parametrize("app", ["elsewhere", ""])
def test_an_app_that_has_no_such_workflow_is_refused_and_those_that_have_it_are_named(url: str, app: str) -> None:
    known_to(url, "shop", "travel")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not known to have workflow 'fulfil'") as told:
        run(url, "SELECT arriero.submit('fulfil', %s, 'a', app => %s)", (BODY, app))
    assert str(told.value.diag.message_hint).endswith("known to have it are shop, travel")


async def test_the_same_id_for_another_app_is_a_unique_violation(url: str) -> None:
    known_to(url, "shop", "travel")
    async with shop(url) as app:
        await app.submit(fulfil(Order("1", 2)), task_id="a")
    with pytest.raises(psycopg.errors.UniqueViolation, match="task 'a' exists with another App"):
        run(url, "SELECT arriero.submit('fulfil', %s, 'a', app => 'travel')", ('{"order": {"id": "1", "pieces": 2}}',))


async def test_an_app_that_was_renamed_is_found_no_more(url: str) -> None:
    known_to(url, "shop", "travel")
    store = PostgresStore(url)
    await store.open()
    await store.rename_app("travel", "shop", 0, "operator ana", "one system")
    await store.close()
    run(url, SUBMIT, (BODY, "a"))
    assert (await app_of(url, "a"))[0] == "shop"


async def test_the_workflows_of_an_app_that_was_renamed_are_found_under_its_new_name_before_it_starts(url: str) -> None:
    known_to(url, "shop", "travel")
    store = PostgresStore(url)
    await store.open()
    await store.rename_app("shop", "store", 0, "operator ana", "a better name")
    await store.close()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is of several Apps: store, travel"):
        run(url, SUBMIT, (BODY, "a"))


@pytest.mark.parametrize("one", ["", "shop", "travel"])
@pytest.mark.parametrize("other", ["", "shop", "travel"])
def test_two_apps_are_told_apart_as_python_does(url: str, one: str, other: str) -> None:
    from arriero.core.apps import is_another_app

    assert run(url, "SELECT arriero.is_another_app(%s, %s)", (one, other)) == [is_another_app(one, other)]
