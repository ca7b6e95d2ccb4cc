"""How the statements of limits are executed beside 25,000 waiting requests of one key, and beside 10,000 keys that wait."""

import asyncio

import msgspec
import psycopg
import pytest
from postgres_servers import server
from test_postgres_plans import Explaining, Grown, faults

from arriero.model.agents import LimitPolicy, encode_limit_keys, encode_limits
from arriero.model.answers import Claimed, Taken
from arriero.model.commands import Claim, Take
from arriero.model.processes import ProcessAbout
from bench.growth import AGENT, LEASE_SECONDS, NAMES, WORKFLOW, new_step, submission

OF_ONE_KEY = 25_000
KEYS = 10_000
COMMON = LimitPolicy(name="concurrent", kind="concurrent", most=1_000)
OF_MERCHANT = LimitPolicy(name="of merchant", kind="concurrent", most=2, is_keyed=True)
AN_HOUR = LimitPolicy(name="an hour", kind="rate", most=1, per=3600.0, is_keyed=True)
ONE_FOR_ALL = LimitPolicy(name="one", kind="concurrent", most=1)
KINDS = {
    "rate with keys": (AN_HOUR,),
    "concurrency": (ONE_FOR_ALL,),
    "rate with keys under one for all": (ONE_FOR_ALL, AN_HOUR),
}
FEW_ROWS = 150  # attempts under way are counted by each Take: there are 101
A_SECOND = LimitPolicy(name="rate", kind="rate", most=1_000, per=1.0, is_keyed=True)

# One request more for each number, under its own key, all due at the same instant as the one that is copied.
COPY = """
INSERT INTO arriero.step
SELECT (jsonb_populate_record(step, jsonb_build_object(
        'step_no', step.step_no + number, 'ordinal', step.ordinal + number, 'key', 'copy-' || number,
        'idempotency_key', 'copy-' || number, 'limit_keys', {keys}))).*
  FROM arriero.step AS step, generate_series(1, %(count)s) AS number
 WHERE step.step_no = (SELECT min(step_no) FROM arriero.step WHERE state = 'pending' AND limit_keys IS NOT NULL)
"""
WAITING = """
INSERT INTO arriero.waiting_keys
SELECT app, agent, limit_keys, min(not_before) FROM arriero.step
 WHERE state = 'pending' AND limit_keys <> '{}' GROUP BY app, agent, limit_keys
    ON CONFLICT DO NOTHING
"""


def fill(made: Grown, *, one_key: bool) -> None:
    """Copy the request that waits."""
    keys = "step.limit_keys" if one_key else "replace(step.limit_keys, 'merchant-0', 'merchant-' || number)"
    with psycopg.connect(made.url, autocommit=True) as connection:
        copy = COPY.format(keys=keys)
        connection.execute(copy.encode(), {"count": OF_ONE_KEY if one_key else KEYS})
        connection.execute(WAITING)


@pytest.mark.parametrize("one_key", [True, False], ids=["one key", "many keys"])
@pytest.mark.parametrize("limits", [(COMMON,), (COMMON, OF_MERCHANT), (COMMON, A_SECOND)], ids=["all", "keyed", "rate"])
async def test_no_statement_of_limits_reads_the_backlog_through_once_all_requests_have_keys(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[LimitPolicy, ...], one_key: bool
) -> None:
    made = await asyncio.to_thread(Grown, 0, f"limits_{len(limits)}_{limits[-1].kind}_{one_key}".lower())
    explaining = Explaining(monkeypatch)
    store = made.store
    await store.open()
    about = ProcessAbout(app="shop", steps=((AGENT, "charge"),), limits={AGENT: encode_limits(limits)})
    number = await store.register("limited", LEASE_SECONDS, msgspec.json.encode(about).decode())
    await store.submit([submission("many", app="shop")])
    life = made.life
    claim = Claim(actor="p", process_no=life.process_no, workflows=(WORKFLOW,), limit=1, probation=True, app="shop")
    (claimed,) = await store.apply([claim])
    assert isinstance(claimed, Claimed)
    ((loaded,),) = (claimed.tasks,)
    named = {limit.name: "merchant-0" for limit in limits if limit.is_keyed}
    request = msgspec.structs.replace(new_step("charge"), limit_keys=encode_limit_keys(named) if named else "{}")
    await life._apply([life.advance(loaded.task, opened=[request])])
    fill(made, one_key=one_key)
    # As a Take finds it, once a minute, when all requests from before the limits have ended.
    made.execute("UPDATE arriero.agent_limits SET has_keyless = false, look_at = look_at + 3600000000")
    found = []
    for when in ("of few", "never", "empty", "now"):
        made.statistics_of(when)
        explaining.taken()
        command = Take(actor="p", process_no=number, room=((AGENT, 12),), names=NAMES, probation=None, app="shop")
        (answer,) = await store.apply([command])
        assert isinstance(answer, Taken)
        assert answer.dispatches or when != "of few"
        await store.list_limits()
        executed = explaining.taken()
        assert {"lock_limits", "count_running_keys"} <= {one.name for one in executed}
        found += [f"statistics {when}: {fault}" for one in executed for fault in faults(one)]
    await store.close()
    server().drop_database(made.url.rpartition("/")[2])
    assert found == []


@pytest.mark.parametrize("limits", KINDS.values(), ids=KINDS)
async def test_a_take_reads_none_of_the_requests_that_a_limit_holds_back(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[LimitPolicy, ...]
) -> None:
    named = "_".join(limit.name for limit in limits).replace(" ", "_")
    made = await asyncio.to_thread(Grown, 0, f"limits_held_back_{named}")
    explaining = Explaining(monkeypatch)
    store = made.store
    await store.open()
    about = ProcessAbout(app="shop", steps=((AGENT, "charge"),), limits={AGENT: encode_limits(limits)})
    number = await store.register("limited", LEASE_SECONDS, msgspec.json.encode(about).decode())
    await store.submit([submission("many", app="shop")])
    life = made.life
    claim = Claim(actor="p", process_no=life.process_no, workflows=(WORKFLOW,), limit=1, probation=True, app="shop")
    (claimed,) = await store.apply([claim])
    assert isinstance(claimed, Claimed)
    ((loaded,),) = (claimed.tasks,)
    keys = encode_limit_keys({limit.name: "merchant-0" for limit in limits if limit.is_keyed})
    request = msgspec.structs.replace(new_step("charge"), limit_keys=keys)
    await life._apply([life.advance(loaded.task, opened=[request])])
    take = Take(actor="p", process_no=number, room=((AGENT, 12),), names=NAMES, probation=None, app="shop")
    fill(made, one_key=AN_HOUR not in limits)
    made.execute("UPDATE arriero.waiting_keys SET look_at = look_at + 3600000000")
    made.execute("UPDATE arriero.agent_limits SET has_keyless = false, look_at = look_at + 3600000000")
    read = []
    await store.apply([take])  # what the limit for all has room for
    for when in ("of few", "never", "empty", "now"):
        made.statistics_of(when)
        explaining.taken()
        (answer,) = await store.apply([take])
        assert isinstance(answer, Taken)
        assert answer.limited[0].is_full
        assert answer.dispatches == ()
        scans = [scan for executed in explaining.taken() for scan in executed.scans()]
        of_keys = [scan for scan in scans if scan["Relation Name"] in ("waiting_keys", "rate", "step")]
        read += [scan["Actual Rows"] * scan["Actual Loops"] + scan.get("Rows Removed by Filter", 0) for scan in of_keys]
    await store.close()
    server().drop_database(made.url.rpartition("/")[2])
    assert max(read) <= FEW_ROWS
