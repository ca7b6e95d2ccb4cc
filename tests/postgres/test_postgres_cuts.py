"""The connection is cut at every phase of a transaction: the answer is right or a StoreError, and to repeat is safe."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from postgres_servers import database, emptied, server
from store_checks import broken_links, disagreements, history_violations
from store_world import TestClock, World, step, submission

from arriero.errors import StoreError
from arriero.model import StepState
from arriero.model.answers import Applied, Refusal, Submitted
from arriero.store.contract import Busy
from arriero.store.postgres import connect_pauses, lanes
from arriero.store.postgres import session as session_module
from arriero.store.postgres import store as store_module
from arriero.store.postgres.session import TransactionLimits
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres import Server
from lab.postgres import Fault, Proxy, answering, client_sends, executing, server_sends

SECONDS_MAX = 60.0  # when a test counts as hanging

Arm = Callable[[Proxy], Fault]

# Each is armed when the connection stands idle. The transactions below take two round trips each: what they lock and
# read, then their writes with COMMIT.
BEFORE_COMMIT: dict[str, Arm] = {
    "before BEGIN": lambda proxy: proxy.cut_before(executing("BEGIN")),
    "within the first message": lambda proxy: proxy.cut_within(client_sends("Bind")),
    "after BEGIN": lambda proxy: proxy.cut_after(executing("BEGIN")),
    "before the first answer": lambda proxy: proxy.cut_before(server_sends("BindComplete")),
    "within the first answer": lambda proxy: proxy.cut_within(server_sends("DataRow")),
    "after the first round trip": lambda proxy: proxy.cut_after(server_sends("ReadyForQuery")),
}
AT_COMMIT: dict[str, Arm] = {
    "before COMMIT": lambda proxy: proxy.cut_before(executing("COMMIT")),
    "within COMMIT": lambda proxy: proxy.cut_within(executing("COMMIT")),
}
AFTER_COMMIT: dict[str, Arm] = {
    "after COMMIT": lambda proxy: proxy.cut_after(executing("COMMIT")),
    "before COMMIT's answer": lambda proxy: proxy.cut_before(answering("COMMIT")),
    "within COMMIT's answer": lambda proxy: proxy.cut_within(answering("COMMIT")),
    "after COMMIT's answer, before the server is ready": lambda proxy: proxy.cut_after(answering("COMMIT")),
}
AFTER_A_ROUND_TRIP = ("after BEGIN", "after the first round trip")  # of those that take two
NEVER_WRITTEN = BEFORE_COMMIT | AT_COMMIT
ALL = NEVER_WRITTEN | AFTER_COMMIT
ALL_OF_ONE_SYNC = {name: arm for name, arm in ALL.items() if name not in AFTER_A_ROUND_TRIP}


def every(arms: dict[str, Arm]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("arm", arms.values(), ids=arms.keys())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for what they know to be refused."""
    monkeypatch.setattr(store_module, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(connect_pauses, "CONNECT_SECONDS_MAX", 0.0)


@pytest.fixture
def postgres() -> Iterator[Server]:
    running = server()
    yield running
    running.resume()  # whatever the test did to it


@pytest.fixture
def url() -> str:
    return emptied(database())


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    with Proxy.start(postgres) as running:
        yield running


@pytest.fixture
async def behind(url: str, proxy: Proxy) -> AsyncIterator[World]:
    """A store behind the proxy; at the end what is kept is whole, as one sees who does not go through the proxy."""
    clock = TestClock()
    store = PostgresStore(proxy.url(url.rpartition("/")[2]) + "?listen=off", clock=clock)
    await store.open()
    await store.register("p1", 3.0)
    yield World(store, clock)
    proxy.disarm()
    await asyncio.wait_for(store.close(), SECONDS_MAX)


@pytest.fixture
async def direct(url: str, behind: World) -> AsyncIterator[World]:
    """The same database, not through the proxy."""
    store = PostgresStore(f"{url}?listen=off", clock=behind.clock)
    await store.open()
    yield World(store, behind.clock)
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []
    await store.close()


async def bounded(answer: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(answer, SECONDS_MAX)


async def happened(fault: Fault) -> None:
    await asyncio.to_thread(fault.wait)


async def answered(call: Callable[[], Any]) -> Any:
    """What a store answers in the end: each of its connections may find once that it is gone."""
    for _ in range(9):
        try:
            return await bounded(call())
        except StoreError as error:
            last = error
    raise AssertionError("it does not go on") from last


# --- apply
@every(NEVER_WRITTEN)
async def test_a_batch_cut_before_its_commit_is_run_once_more_on_a_new_connection_and_written_once(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    task = await behind.held()
    links = await direct.links(task.task_no)
    command = behind.advance_command(task, opened=[step(take=True)])
    fault = arm(proxy)

    async with asyncio.timeout(SECONDS_MAX):
        (answer,) = await answered(lambda: behind.store.apply([command]))
        while isinstance(answer, Busy):  # the server has not noticed the cut yet: its back end still has the task open
            (answer,) = await answered(lambda: behind.store.apply([command]))

    await happened(fault)
    assert isinstance(answer, Applied)
    assert (await direct.load(task.task_no)).steps == tuple(answer.steps)
    assert len(await direct.links(task.task_no)) == len(links) + 1


async def test_a_batch_cut_on_every_connection_it_gets_raises_and_changes_nothing(
    behind: World, direct: World, proxy: Proxy
) -> None:
    task = await behind.held()
    before = await direct.rows()
    proxy.refuse()
    proxy.cut()

    with pytest.raises(StoreError):
        await bounded(behind.store.apply([behind.advance_command(task, opened=[step(take=True)])]))

    proxy.accept()
    assert await direct.rows() == before


@every(AFTER_COMMIT)
async def test_a_batch_whose_commit_was_carried_out_answers_as_committed(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    task = await behind.held()
    command = behind.advance_command(task, opened=[step(take=True)])
    fault = arm(proxy)

    (answer,) = await bounded(behind.store.apply([command]))

    await happened(fault)
    assert isinstance(answer, Applied)
    kept = await direct.load(task.task_no)
    assert kept.task == answer.task
    assert kept.steps == tuple(answer.steps)
    (again,) = await behind.store.apply([command])
    assert isinstance(again, Refusal)
    assert await direct.load(task.task_no) == kept


@every(ALL)
async def test_a_claim_that_was_cut_gives_each_task_once(arm: Arm, behind: World, direct: World, proxy: Proxy) -> None:
    for number in range(3):
        await behind.submit(f"order-{number}")
    await behind.store.apply([behind.claim_command(limit=1)])
    fault = arm(proxy)

    try:
        answers = await bounded(behind.store.apply([behind.claim_command(limit=1)]))
    except StoreError:
        answers = []

    await happened(fault)
    held = [loaded.task.task_id for loaded in await direct.store.load_held(1, 10)]
    told = [loaded.task.task_id for answer in answers for loaded in answer.tasks]
    assert held == ["order-0", *told]


async def test_batches_go_on_by_themselves_after_one_cut_after_another(
    behind: World, direct: World, proxy: Proxy
) -> None:
    task = await behind.held()
    opened = 0
    for name, arm in ALL.items():
        command = behind.advance_command(task, opened=[step(key=name)])
        fault = arm(proxy)
        (answer,) = await answered(lambda sent=command: behind.store.apply([sent]))  # type: ignore[misc]  # bound now
        while isinstance(answer, Busy):  # by the connection that is gone; the committer asks again, too
            (answer,) = await answered(lambda sent=command: behind.store.apply([sent]))  # type: ignore[misc]  # bound now
        assert isinstance(answer, Applied)
        task, opened = answer.task, opened + 1
        await happened(fault)
    assert len((await direct.load(task.task_no)).steps) == opened == len(ALL)


async def test_rows_locked_for_a_client_that_was_cut_off_are_free_when_the_server_has_waited_long_enough(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "ENGINE", TransactionLimits(lock=0.2, statement=10.0, idle=0.3))
    clock = TestClock()
    store = PostgresStore(proxy.url(url.rpartition("/")[2]) + "?listen=off", clock=clock)
    await store.open()
    try:
        await store.register("p1", 3.0)
        world = World(store, clock)
        task = await world.held()
        command = world.advance_command(task, opened=[step()])
        fault = proxy.cut_after(server_sends("ReadyForQuery"), keep_server=True)
        (held,) = await answered(lambda: store.apply([command]))
        await happened(fault)
        while isinstance(held, Busy):  # by the connection that is gone
            (held,) = await answered(lambda: store.apply([command]))
        assert isinstance(held, Applied)
    finally:
        await store.close()


async def test_a_batch_whose_commit_the_server_never_gets_raises_when_the_server_lets_it_go(
    behind: World, direct: World, proxy: Proxy
) -> None:
    task = await behind.held()
    before = await direct.load(task.task_no)
    fault = proxy.cut_before(executing("COMMIT"), keep_server=True)
    asking = proxy.hold(executing("-- select_batch"))
    waiting = asyncio.ensure_future(behind.store.apply([behind.advance_command(task, opened=[step()])]))
    await happened(fault)
    await happened(asking)
    assert not waiting.done()

    proxy.cut()  # the server's end too

    with pytest.raises(StoreError):
        await bounded(waiting)
    assert await direct.load(task.task_no) == before


async def test_a_commit_that_arrives_after_its_client_gave_up_is_answered_as_committed(
    behind: World, direct: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await behind.held()
    fault = proxy.hold(executing("COMMIT"))
    waiting = asyncio.ensure_future(behind.store.apply([behind.advance_command(task, opened=[step()])]))
    await happened(fault)
    engine, _ = behind.store._lanes["engine"]
    asking = proxy.hold(executing("-- select_batch"))  # so that the judge is known to come before the commit does

    engine.cut()
    await happened(asking)
    assert not waiting.done()
    asking.release()
    fault.release()

    (answer,) = await bounded(waiting)
    assert isinstance(answer, Applied)
    assert (await direct.load(task.task_no)).steps == tuple(answer.steps)


# --- submit
@every(ALL)
async def test_a_submission_that_was_cut_is_new_exactly_once_and_there_is_one_task(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    await behind.submit("before")
    fault = arm(proxy)
    created = []
    for _ in range(3):
        try:
            (answer,) = await bounded(behind.store.submit([submission("order-1")]))
        except StoreError:
            assert not await _kept(direct, "order-1")
            continue
        assert isinstance(answer, Submitted)
        created.append(answer.created)

    await happened(fault)
    assert created[0] is True
    assert not any(created[1:])
    assert [row.task_id for row in await direct.store.list_tasks()] == ["before", "order-1"]


@every(AFTER_COMMIT)
async def test_of_a_batch_that_was_cut_what_was_there_before_is_told_as_known_and_what_is_refused_as_refused(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    await behind.submit("old")
    fault = arm(proxy)
    again = [submission("old", seed=8), submission("old", body_hash="another", seed=9)]
    batch = [*again, submission("new", seed=10), submission("new", seed=11)]

    old, other, new, twice = await bounded(behind.store.submit(batch))

    await happened(fault)
    assert (old.created, new.created, twice.created) == (False, True, False)
    assert isinstance(other, Refusal)
    assert len(await direct.store.list_tasks()) == 2


async def test_a_submission_whose_commit_arrives_late_is_new_once(behind: World, direct: World, proxy: Proxy) -> None:
    await behind.submit("before")
    fault = proxy.hold(executing("COMMIT"))
    waiting = asyncio.ensure_future(behind.store.submit([submission("order-1")]))
    await happened(fault)
    lane, _ = behind.store._lanes["submissions"]
    again = proxy.hold(executing("INSERT"))

    lane.cut()
    await happened(again)
    fault.release()
    again.release()

    (answer,) = await bounded(waiting)
    assert answer == Submitted(answer.task_no, True)
    assert [row.task_id for row in await direct.store.list_tasks()] == ["before", "order-1"]


async def _kept(world: World, task_id: str) -> bool:
    return await world.store.find(task_id) is not None


# --- renew, register, leases
@every(ALL)
async def test_a_renewal_that_was_cut_is_repeated_and_the_process_stays(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    await behind.store.renew(1, 3.0)
    behind.clock.move(1.0)
    fault = arm(proxy)

    with suppress(StoreError):
        await bounded(behind.store.renew(1, 3.0))
    await happened(fault)
    renewal = await behind.store.renew(1, 3.0)

    assert renewal.renewed
    _, (process,) = await direct.store.known_processes()
    assert process.lease_until == behind.clock.at + 3_000_000


@every(ALL_OF_ONE_SYNC)
async def test_a_registration_that_was_cut_leaves_at_most_one_start_of_that_name(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    fault = arm(proxy)

    with suppress(StoreError):
        await bounded(behind.store.register("p2", 3.0))
    await happened(fault)
    number = await behind.store.register("p3", 3.0)

    _, known = await direct.store.known_processes()
    names = [process.instance for process in known]
    assert names in (["p1", "p3"], ["p1", "p2", "p3"])
    assert known[-1].process_no == number
    (answer,) = await behind.store.apply([behind.claim_command(number)])  # its batches are numbered
    assert answer.tasks == ()


@every(ALL_OF_ONE_SYNC)
async def test_a_lease_that_was_cut_while_taken_is_taken_under_one_term(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    fault = arm(proxy)
    with suppress(StoreError):
        await bounded(behind.store.acquire_lease("supervisor", 1, "p1", 6.0))
    await happened(fault)

    lease = await behind.store.acquire_lease("supervisor", 1, "p1", 6.0)

    assert (lease.term, lease.holder) == (1, 1)


# --- reads
@every(ALL)
async def test_a_read_that_was_cut_raises_or_is_right_and_the_next_one_is_right(
    arm: Arm, behind: World, direct: World, proxy: Proxy
) -> None:
    task_no = await behind.submit()
    wanted = await direct.load(task_no)
    fault = arm(proxy)

    with suppress(StoreError):
        assert await bounded(behind.store.load(task_no)) == wanted

    await happened(fault)
    assert await behind.store.load(task_no) == wanted


async def test_a_history_that_was_cut_between_its_pages_raises_and_can_be_read_again(
    behind: World, proxy: Proxy
) -> None:
    await behind.submit()
    fault = proxy.cut_before(executing("-- select_history"))
    with pytest.raises(StoreError):
        _ = [row async for row in behind.store.history()]
    await happened(fault)
    assert len([row async for row in behind.store.history()]) == 2  # the process, the task


# --- servers that stand still, and that come back
async def test_a_server_that_stands_still_in_a_commit_is_given_up_and_the_batch_is_answered_when_it_wakes(
    behind: World, direct: World, postgres: Server, proxy: Proxy
) -> None:
    task = await behind.held()
    fault = proxy.hold(executing("COMMIT"))
    waiting = asyncio.ensure_future(behind.store.apply([behind.advance_command(task, opened=[step()])]))
    await happened(fault)
    postgres.pause()
    fault.release()  # into the stopped server's buffer
    lane, _ = behind.store._lanes["engine"]

    lane.cut()
    connecting = proxy.hold(client_sends("Startup"))
    await happened(connecting)  # it has given up, and asks anew
    assert not waiting.done()
    postgres.resume()
    connecting.release()

    (answer,) = await bounded(waiting)
    assert isinstance(answer, Applied)
    assert (await direct.load(task.task_no)).steps == tuple(answer.steps)


async def _read_through(store: PostgresStore) -> int:
    return len([row async for row in store.history()])


@pytest.mark.parametrize("what", ["apply", "submit", "renew", "load", "history"])
async def test_a_store_that_gets_no_answer_gives_up_by_itself(
    what: str, url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENGINE", "SUBMISSIONS", "RENEWALS", "OTHERS", "LONG"):
        monkeypatch.setattr(lanes, name, TransactionLimits(lock=0.1, statement=0.2))
    monkeypatch.setattr(session_module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(store_module, "DECIDED_SECONDS", 0.5)
    clock = TestClock()
    store = PostgresStore(proxy.url(url.rpartition("/")[2]) + "?listen=off&connect_timeout=2", clock=clock)
    await store.open()
    try:
        world = World(store, clock)
        await store.register("p1", 3.0)
        await world.held()
        await store.renew(1, 3.0)
        calls = {
            "apply": lambda: store.apply([world.claim_command()]),
            "submit": lambda: store.submit([submission("order-2")]),
            "renew": lambda: store.renew(1, 3.0),
            "load": lambda: store.load(1),
            "history": lambda: _read_through(store),
        }
        proxy.stall()
        with pytest.raises(StoreError):
            await bounded(calls[what]())
        proxy.flow()
        await bounded(calls[what]())
    finally:
        proxy.flow()
        await asyncio.wait_for(store.close(), SECONDS_MAX)


@pytest.mark.parametrize("how", ["restart", "kill", "postmaster"])
async def test_a_store_goes_on_by_itself_when_its_server_is_back(how: str) -> None:
    with Server.start(durable=False) as own:
        url = own.create_database("shop")
        clock = TestClock()
        store = PostgresStore(url, clock=clock)
        await store.open()
        try:
            world = World(store, clock)
            await store.register("p1", 3.0)
            task = await world.held()
            if how == "restart":
                own.restart()
            elif how == "kill":
                own.kill()
                with pytest.raises(StoreError, match="is it running|Connection refused|closed the connection|lost"):
                    await bounded(store.load(task.task_no))
                own.restart()
            else:
                own.kill_postmaster()
                own.restart()

            command = world.advance_command(task, opened=[step(take=True)])
            (answer,) = await answered(lambda: store.apply([command]))
            assert isinstance(answer, Applied)
            assert answer.steps[0].state is StepState.RUNNING
            assert (await answered(lambda: store.submit([submission("order-2")])))[0].created
            assert (await answered(lambda: store.renew(1, 3.0))).renewed
            assert len(await answered(lambda: store.list_tasks())) == 2
            assert await answered(lambda: store.acquire_lease("supervisor", 1, "p1", 6.0))
            assert await answered(lambda: disagreements(store)) == []
        finally:
            await asyncio.wait_for(store.close(), SECONDS_MAX)
