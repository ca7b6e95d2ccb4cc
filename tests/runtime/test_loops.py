"""Loops go on: one exception out of one turn ends none of them, in every loop that there is."""

import ast
import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, eventually, session_of, until, within

import arriero
from arriero import Agent, Attempt, Retry, StoreError, Supervision, workflow
from arriero.client.assembly import run_node
from arriero.config import Configuration
from arriero.inspection.facts import CountsRow
from arriero.runtime import (
    call_monitor,
    node,
    schedule_runner,
    upkeep,
)
from arriero.runtime import reload as rereading
from arriero.runtime.loop_watch import LoopWatch
from arriero.runtime.settings import check_roles
from arriero.store.postgres import (
    listening,
    session,
)
from arriero.store.postgres.target import target_of
from arriero.store.sqlite.store import SqliteStore
from arriero.store.threads import ConnectionThread
from arriero.system.loops import EVERY_SECONDS, Loop, LoopGuard, WarningThrottle

logger = logging.getLogger("arriero.test")
SRC = Path(arriero.__file__).parent


def test_trouble_that_lasts_is_told_now_and_again_and_new_trouble_at_once(caplog: pytest.LogCaptureFixture) -> None:
    at = 100.0
    throttle = WarningThrottle(logger, lambda: at)
    for _ in range(5):
        throttle.warn("away: %s", ValueError("one"))
    assert caplog.messages == ["away: one"]
    at += EVERY_SECONDS
    throttle.warn("away: %s", ValueError("two"))
    assert caplog.messages == ["away: one", "away: two"]
    throttle.reset()
    throttle.warn("away: %s", ValueError("three"))
    assert caplog.messages[-1] == "away: three"


def test_a_guard_names_its_loop_tells_seldom_and_lets_cancellation_pass(caplog: pytest.LogCaptureFixture) -> None:
    guard = LoopGuard(Loop.POLL, lambda: 0.0, unanswered="nobody answers: %s")
    for error in (MemoryError(), MemoryError(), StoreError("away"), RuntimeError("can't start new thread")):
        with guard:
            raise error
        assert guard.failed
    assert caplog.messages == [
        "the loop poll continues after an unexpected error in one turn of it: MemoryError()",
        "nobody answers: away",
    ]
    with guard:
        pass
    assert not guard.failed
    with pytest.raises(asyncio.CancelledError), guard:
        raise asyncio.CancelledError


# --- one exception in each of them
class Faulty(SqliteStore):
    """A store in a file of which a method raises once, when it is told to; it counts what is asked of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.to_raise: dict[str, BaseException] = {}
        self.raised: set[str] = set()
        self.asked_since: dict[str, int] = {}

    def break_once(self, method: str, error: BaseException | None = None) -> None:
        self.to_raise[method] = MemoryError() if error is None else error

    def went_on(self, method: str) -> bool:
        """Whether it has raised and was asked again since."""
        return method in self.raised and self.asked_since[method] > 0


def _faulty(method: str) -> Callable[..., Any]:
    async def faulty(self: Faulty, *args: Any, **kwargs: Any) -> Any:
        if (error := self.to_raise.pop(method, None)) is not None:
            self.raised.add(method)
            self.asked_since[method] = 0
            raise error
        if method in self.raised:
            self.asked_since[method] += 1
        return await getattr(SqliteStore, method)(self, *args, **kwargs)

    return faulty


FAULTY = (
    "renew",
    "due",
    "acquire_lease",
    "load_overdue",
    "list_ledgers",
    "take_alerts",
    "apply",
    "load_held",
    "load_ended",
    "load_versions",
    "put_agent_counts",
    "load_due_schedules",
)
for _method in FAULTY:
    setattr(Faulty, _method, _faulty(_method))

mules = Agent("mules")
hold: dict[str, asyncio.Event] = {}


@mules.step
async def load(attempt: Attempt, name: str) -> str:
    if name in hold:
        await hold[name].wait()
    return name


@mules.step(complete_within=0.1, supervision=Supervision(attempts=9, complete_within_factor=10), retry=Retry(tries=1))
async def hang_once(attempt: Attempt) -> int:
    if attempt.number == 1:
        await asyncio.Event().wait()
    return attempt.number


@workflow
async def carry(name: str) -> list[str]:
    return [await load(name), await load("second")]


class Case:
    """An App that runs on a faulty store, and a second one on the same file."""

    def __init__(self, machine: Machine, patch: pytest.MonkeyPatch) -> None:
        self.machine = machine
        self.patch = patch
        self.store = Faulty(machine.path)
        self.app = machine.app([mules], [carry])
        self.other = machine.app([mules], [carry])

    def running(self) -> AbstractAsyncContextManager[None]:
        return run_node(self.app.session, self.store, check_roles(None), self.app.agents, Configuration())

    async def goes_on(self, method: str) -> None:
        """While it runs, the method raises once; it is asked again by the same process start."""
        async with self.running():
            session = session_of(self.app)
            self.store.break_once(method)
            await until(lambda: self.store.went_on(method))
            assert all(session.list_loop_liveness().values())
            assert session_of(self.app) is session
            assert await within((await self.app.submit(carry("first"))).result()) == ["first", "second"]


async def lease(case: Case) -> None:
    await case.goes_on("renew")
    assert case.app.session.node is None


async def poll(case: Case) -> None:
    async with case.running(), case.other:
        session = session_of(case.app)
        case.store.break_once("due")
        await until(lambda: case.store.went_on("due"))
        assert session_of(case.app) is session
        assert await within((await case.other.submit(load("mule"))).result()) == "mule"


async def leader(case: Case) -> None:
    case.store.break_once("acquire_lease")
    async with case.running():
        await until(lambda: session_of(case.app).leader.term == 1)
    assert case.store.raised == {"acquire_lease"}


async def recovery(case: Case) -> None:
    async with case.running():
        session = session_of(case.app)
        case.store.break_once("load_overdue")
        await until(lambda: case.store.went_on("load_overdue"))
        assert session_of(case.app) is session
        assert await within((await case.app.submit(hang_once())).result()) >= 2


async def upkeeping(case: Case) -> None:
    case.patch.setattr(upkeep, "AGAIN_SECONDS", 0.01)
    await case.goes_on("list_ledgers")


async def schedules(case: Case) -> None:
    case.patch.setattr(schedule_runner, "LOOK_SECONDS", 0.01)
    await case.goes_on("load_due_schedules")


async def metrics(case: Case) -> None:
    case.patch.setattr(call_monitor, "WRITE_SECONDS", 0.01)
    async with case.running():
        session = session_of(case.app)
        case.store.break_once("put_agent_counts")
        await within((await case.app.submit(load("mule"))).result())
        (row,) = await eventually(lambda: _find_counts(case))
        assert (row.calls, case.store.went_on("put_agent_counts")) == (1, True)
        assert all(session.list_loop_liveness().values())


async def _find_counts(case: Case) -> tuple[CountsRow, ...] | None:
    return (await case.store.measure_agents()).counts or None


async def alerts(case: Case) -> None:
    await case.goes_on("take_alerts")


async def committer(case: Case) -> None:
    async with case.running():
        await until(lambda: session_of(case.app).leader.term == 1)
        await within((await case.app.submit(load("mule"))).result())
        case.store.break_once("apply")
        async with case.other:  # another process, so that no submission begins it here
            task = await case.other.submit(carry("first"))
        assert await within(case.app.task(task.id, carry).result()) == ["first", "second"]
        assert case.store.went_on("apply")


async def reread(case: Case) -> None:
    turn, turns = rereading._yield_to_event_loop, 0

    async def break_in_the_second() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise MemoryError
        await turn()

    case.patch.setattr(rereading, "_yield_to_event_loop", break_in_the_second)
    hold["first"] = asyncio.Event()
    async with case.running():
        tasks = [await case.app.submit(carry("first")) for _ in range(3)]
        scheduler = session_of(case.app).scheduler
        await until(lambda: len(scheduler.drivers) == 3)
        for task_no in list(scheduler.drivers):
            scheduler.reload_soon(task_no, ())
        await until(lambda: turns > 2)
        hold.pop("first").set()
        for task in tasks:
            assert await within(task.result()) == ["first", "second"]


async def no_answer(*_args: Any, **_kwargs: Any) -> Any:
    raise StoreError("store: cut off")


async def freeing(case: Case) -> None:
    hold["first"] = asyncio.Event()
    async with case.other.running(roles=["scheduler", "agents"]):
        task = await case.other.submit(carry("first"))
        await case.machine.event("step.dispatched", task=task.id)
        async with case.running():  # only now, or it might have taken the task itself
            lost = session_of(case.other)
            case.patch.setattr(lost._store, "renew", no_answer)  # it does not hear that it is lost
            case.store.break_once("load_held")
            await lost._store.retire(lost.context.process_no, by="test", known_dead=True)
            await until(lambda: case.store.went_on("load_held"))
            hold.pop("first").set()
            assert await within(case.app.task(task.id, carry).result()) == ["first", "second"]


async def begin_again(case: Case) -> None:
    async with case.running():
        lost = session_of(case.app)
        assert case.app.session.node is not None
        make = case.app.session.node._make_session
        failures = [MemoryError(), MemoryError()]

        def break_once() -> Any:
            if failures:
                raise failures.pop()
            return make()

        case.patch.setattr(node, "BEGIN_AGAIN_SECONDS", 0.01)
        case.patch.setattr(case.app.session.node, "_make_session", break_once)
        lost.lost.set()
        await until(lambda: case.app.session.node is not None and case.app.session.node.session not in (None, lost))
        assert failures == []
        assert await within((await case.app.submit(load("mule"))).result()) == "mule"


async def waiting(case: Case) -> None:
    async with case.machine.app([mules], [carry]).running():
        await case.other.session.open(case.store)  # a client, whose store breaks
        case.store.break_once("load_ended")
        assert await within((await case.other.submit(load("mule"))).result()) == "mule"
        assert "load_ended" in case.store.raised
        await case.other.session.close()


async def following(case: Case) -> None:
    async with case.machine.app([mules], [carry]).running():
        await case.other.session.open(case.store)  # a client, whose store breaks
        case.store.break_once("load_versions")
        task = await case.other.submit(load("mule"))
        async with asyncio.timeout(60):
            states = [view.state async for view in task.changes()]
        assert states[-1] == "processed"
        assert "load_versions" in case.store.raised
        await case.other.session.close()


class Nothing:
    """A connection to nothing."""

    def close(self) -> None:
        raise MemoryError


async def store_thread(case: Case) -> None:
    betweens: list[None] = []

    def break_between(_: Nothing) -> None:
        betweens.append(None)
        raise MemoryError

    thread = ConnectionThread("test", Nothing, break_between)
    assert [await within(thread.run(lambda _, n=n: n)) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]  # bound now
    await within(thread.close())
    assert len(betweens) == 3


async def listener(case: Case) -> None:
    listened = threading.Semaphore(0)

    def break_down(_: listening.Listener) -> None:
        listened.release()
        raise MemoryError

    case.patch.setattr(listening, "AGAIN_SECONDS", 0)
    case.patch.setattr(listening.Listener, "_listen", break_down)
    one = listening.Listener(target_of("postgresql://nobody@127.0.0.1:1/none"), lambda: None, own="test")
    for _ in range(3):
        assert await asyncio.to_thread(listened.acquire, timeout=60)
    one.end()
    await within(asyncio.to_thread(one.join))


class Waits:
    """Who waits for a server, and how often that was cut."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.cuts = threading.Semaphore(0)

    def cut(self) -> None:
        self.cuts.release()
        if self.error is not None:
            raise self.error


async def watch(case: Case) -> None:
    case.patch.setattr(session, "LOOK_SECONDS", 0.001)
    dog, bad, good = session.Watchdog(), Waits(MemoryError()), Waits()
    dog.watch(bad, 0)
    dog.watch(good, 0)
    for waits in (bad, good, bad, good):
        assert await asyncio.to_thread(waits.cuts.acquire, timeout=60)
    dog.forget(bad)
    dog.forget(good)


async def watch_loop(case: Case) -> None:
    looks = threading.Semaphore(0)

    def break_down(self: LoopWatch, _: Any) -> None:
        looks.release()
        raise MemoryError

    case.patch.setattr(LoopWatch, "_look", break_down)
    async with case.running():
        for _ in range(3):
            assert await asyncio.to_thread(looks.acquire, timeout=60)
        assert session_of(case.app).list_loop_liveness()[Loop.LOOP_WATCH]


CASES: dict[Loop, Callable[[Case], Awaitable[None]]] = {
    Loop.LEASE: lease,
    Loop.POLL: poll,
    Loop.LEADER: leader,
    Loop.RECOVERY: recovery,
    Loop.UPKEEP: upkeeping,
    Loop.SCHEDULES: schedules,
    Loop.ALERTS: alerts,
    Loop.METRICS: metrics,
    Loop.COMMITTER: committer,
    Loop.REREADING: reread,
    Loop.FREEING: freeing,
    Loop.NODE: begin_again,
    Loop.WAITING: waiting,
    Loop.FOLLOWING: following,
    Loop.STORE_THREAD: store_thread,
    Loop.LISTENER: listener,
    Loop.WATCHDOG: watch,
    Loop.LOOP_WATCH: watch_loop,
}


@pytest.mark.parametrize("loop", list(Loop))
async def test_a_loop_goes_on_after_an_unexpected_exception_in_one_turn(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, loop: Loop
) -> None:
    hold.clear()
    await CASES[loop](Case(machine, monkeypatch))


# --- where loops begin
STARTS: dict[tuple[str, str], Loop | str] = {
    ("runtime.probes", "Probing.look"): "one probe: it ends by itself, and its failures are handled",
    ("runtime.probes", "Probing._call"): "the function of one probe: it is cut off after its time",
    ("runtime.agent_host", "AgentHost.dispatch"): "one attempt: it ends by itself, and its end is handled",
    ("runtime.alerts", "Alerting._handle"): "tells one alert, awaited at once",
    ("runtime.shutdown", "finish"): "one ending, awaited at once",
    ("runtime.attempt_time", "AttemptTime.save_checkpoint"): "keeps one checkpoint, also if its caller stops waiting",
    (
        "runtime.remote_dispatcher",
        "RemoteDispatcher._begin",
    ): "gives one request back, or looks at one row; failures are handled",
    ("runtime.child_main", "Parent.listen"): "in a child process, which ends with it",
    ("runtime.membership", "Membership._free_if_lost"): Loop.FREEING,
    ("runtime.node", "Node._begin_again"): "leaves one lost session, awaited at once",
    ("runtime.node", "Node.start"): Loop.NODE,
    ("runtime.node", "NodeSession._create_task"): "what the others here begin with",
    ("runtime.node", "NodeSession._begin"): "the loops of a session",
    ("runtime.node", "NodeSession._put_down_all"): "tells the other processes once",
    ("runtime.node", "NodeSession._spawn"): "what membership and scheduler begin",
    ("runtime.ports", "SystemPorts.wait_in_thread"): "one question of a step in a thread, which waits for its answer",
    ("runtime.ports", "ThreadKeeper.__init__"): Loop.LEASE,
    ("runtime.ports", "ThreadKeeper._run.main"): Loop.LEASE,
    ("runtime.ports", "ThreadWatch.__init__"): Loop.LOOP_WATCH,
    ("runtime.reload", "ReloadQueue.ask"): Loop.REREADING,
    ("runtime.single_pass", "SinglePass._spawn"): "frees what a lost process held, awaited before the pass goes on",
    ("runtime.single_pass", "SinglePass._work"): Loop.LEADER,
    ("runtime.result_waiters", "TaskWaiters._enter"): Loop.WAITING,
    (
        "runtime.progress_publisher",
        "ProgressPublisher._begin",
    ): "one write of what an attempt publishes; its end is handled",
    (
        "client.signals",
        "_nap",
    ): "a pause between two looks for a reply, and the wait for the end of the task; both end with it",
    ("client.remote_progress", "MergedValues.publish"): "one write of what a program publishes, awaited by its callers",
    ("metrics.collector", "MetricsCollector._find_reader"): "one reading of the store; its end is handled",
    ("metrics.collector", "MetricsCollector._read_anywhere"): "one reading that another thread waits for",
    ("leases.etcd", "EtcdConnection._watch"): "waits for one change of a lease; the mutex asks again when it has ended",
    ("leases.etcd_gateway", "EtcdGateway._send"): "one request, awaited by its caller",
    ("leases.keeper", "LeaseKeeper._keep"): "waits for one signal of the provider; the keeper looks at it",
    ("leases.keeper", "LeaseKeeper._wait_for_renewal"): "one pause, and one wait for a signal",
    ("leases.mutex", "_start_keeping"): "one term of a lease, where no time passes elsewhere; its end is handled",
    ("leases.mutex", "_Term._lead"): "the user's work under one term; its end is handled",
    ("leases.mutex", "_Term._do_work"): "a plain function of the user's, awaited at once",
    ("leases.mutex", "_Term._wait_for_any"): "waits for the first of some events, ended at once",
    ("leases.program", "LedProgram._watch"): "waits for the end of a program that is led",
    ("store.committer", "Committer._put_again"): "puts one command again",
    ("store.committer", "Committer.start"): Loop.COMMITTER,
    ("store.postgres.listening", "Listener.__init__"): Loop.LISTENER,
    ("store.postgres.lanes", "PostgresLanes._tell"): "tells the other processes once",
    ("store.postgres.session", "Watchdog.watch"): Loop.WATCHDOG,
    ("store.threads", "ConnectionThread.__init__"): Loop.STORE_THREAD,
    ("server.routes.agent_requests", "TakenResponse.__call__"): "one answer, and looks whether its caller is there",
    ("server.routes.submissions", "wait_until_shutdown"): "waits for the end of a task or of the server, ended at once",
    ("server.http_server", "HttpServer.start"): "runs uvicorn, whose end the process waits for",
    ("server.application", "ServerReadiness._ask_store_once"): "one question to the store; its failures are handled",
    ("server.calls", "ShutdownSignal.run_until_begun"): "one request, awaited at once",
    ("server.authentication", "TokenLookups.find"): "the queries of those who wait; their failures are handled",
    (
        "server.console.live",
        "StoreWatch.wait",
    ): "looks at the store while pages are open; its failure ends their streams",
    ("client.timeline", "TimelineFollower._wait"): "one wait for a change, awaited by the one who follows",
    (
        "leases.nats_stream",
        "NatsStream.close",
    ): "closes a connection; every later close waits for it, and it ends after 2 s",
    (
        "runtime.child_tasks",
        "ChildTasks.look",
    ): "children of one task are looked at; it ends by itself, or with the process",
    ("runtime.child_tasks", "ChildTasks.begin"): "new children of one task are submitted; so, too",
    ("client.background", "BackgroundLoop.__init__"): "runs the event loop of app.sync, whose tasks are those above",
    ("client.background", "BackgroundLoop.begin"): "one call of app.sync, awaited by its caller",
}
BEGUN_BY_WAITERS = {Loop.FOLLOWING}  # as that of ``Loop.WAITING``
BEGUN_IN_SESSION = {Loop.POLL, Loop.LEADER, Loop.RECOVERY, Loop.SCHEDULES, Loop.UPKEEP, Loop.ALERTS, Loop.METRICS}
STARTING = ("create_task", "_create_task", "ensure_future", "run_coroutine_threadsafe", "Thread", "_spawn")
ELSEWHERE = ("testing", "cli", "core")  # for tests; programs of one task; no event loop of ours


class Starts(ast.NodeVisitor):
    """Which functions of a module begin a task or a thread."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.found: set[str] = set()

    def _inside(self, definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.path.append(definition.name)
        self.generic_visit(definition)
        self.path.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _inside

    def visit_Call(self, call: ast.Call) -> None:
        if ast.unparse(call.func).split(".")[-1] in STARTING:
            self.found.add(".".join(self.path))
        self.generic_visit(call)


def test_every_place_that_begins_a_task_or_a_thread_is_known_and_every_loop_begins_somewhere() -> None:
    """A new one: give its loop a name in ``Loop``, a guard and a case above; or say here why it is no loop."""
    found = set()
    for path in SRC.rglob("*.py"):
        parts = path.relative_to(SRC).with_suffix("").parts
        if parts[0] not in ELSEWHERE:
            starts = Starts()
            starts.visit(ast.parse(path.read_text()))
            found |= {(".".join(parts), where) for where in starts.found}
    assert found == set(STARTS)
    assert {loop for loop in STARTS.values() if isinstance(loop, Loop)} | BEGUN_IN_SESSION | BEGUN_BY_WAITERS == set(
        Loop
    )


# --- if one ends all the same
async def test_a_process_whose_loop_has_ended_begins_again_and_works(machine: Machine) -> None:
    app = machine.app([mules], [carry])
    async with app.running():
        broken = session_of(app)
        assert set(broken.list_loop_liveness()) == BEGUN_IN_SESSION | {
            Loop.LEASE,
            Loop.COMMITTER,
            Loop.REREADING,
            Loop.LOOP_WATCH,
        }
        broken._loops[Loop.POLL].cancel()
        await until(lambda: app.session.node is not None and app.session.node.session not in (None, broken))
        assert await within((await app.submit(carry("first"))).result()) == ["first", "second"]


async def test_a_process_whose_renewals_have_ended_begins_again_and_works(machine: Machine) -> None:
    """Nothing would tell it that it is lost: it hears that from its renewals."""

    class Ended(BaseException):
        """What no loop catches."""

    case = Case(machine, pytest.MonkeyPatch())
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        async with case.running():
            broken = session_of(case.app)
            case.store.break_once("renew", Ended())
            await until(
                lambda: case.app.session.node is not None and case.app.session.node.session not in (None, broken)
            )
            assert not broken.context.is_trusted()
            assert await within((await case.app.submit(carry("first"))).result()) == ["first", "second"]
    finally:
        threading.excepthook = hook


async def test_whoever_asks_a_thread_that_has_ended_is_told_so_and_waits_for_nothing() -> None:
    class Ended(BaseException):
        """What no loop catches."""

    def end(_: Nothing) -> None:
        raise Ended

    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        thread = ConnectionThread("test", Nothing, end)
        first = asyncio.ensure_future(thread.run(lambda _: 1))
        second = asyncio.ensure_future(thread.run(lambda _: 2))
        assert await within(first) == 1
        with pytest.raises(StoreError, match="thread has ended"):
            await within(second)
        with pytest.raises(StoreError, match="closed"):
            await within(thread.run(lambda _: 3))
        await within(thread.close())
    finally:
        threading.excepthook = hook


async def test_an_exception_that_no_future_takes_is_told_to_whoever_asked() -> None:
    def stop(_: Nothing) -> None:
        raise StopIteration

    thread = ConnectionThread("test", Nothing)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await within(thread.run(stop))
    await within(thread.close())
