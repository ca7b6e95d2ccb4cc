"""The front for code without an event loop: one background thread, many callers, forks, and the interpreter's exit."""

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from runtime_world import SECONDS_MAX, Machine
from threads_of_test import NewThreads
from waiting import wait_until

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    StoreError,
    SyncApp,
    SyncTask,
    SyncTasks,
    Task,
    TaskCompensated,
    TaskFailed,
    Tasks,
    UnknownTask,
    VerbRefused,
    workflow,
)
from arriero.client.schedules import Schedules
from arriero.client.sync import SyncSchedules

NEXT_INTERRUPT_SECONDS = 20.0  # longer than a busy machine needs to handle the first

echoes = Agent("echoes")


@echoes.step
async def echo(attempt: Attempt, text: str) -> str:
    return text


@workflow
async def greet(name: str) -> str:
    return "hello " + await echo(name)


@workflow
async def nap(seconds: float) -> str:
    await arriero.sleep(seconds)
    return "awake"


@workflow
async def buggy() -> None:
    raise ZeroDivisionError("a bug")


new_threads = NewThreads()


@pytest.fixture
def app(machine: Machine) -> Iterator[App]:
    global new_threads
    new_threads = NewThreads()
    yield machine.app([echoes], [greet, nap, buggy])
    assert new_threads.names() == []


@contextmanager
def interrupted_once(question: Callable[[], object]) -> Iterator[None]:
    """The main thread is interrupted in this block, once the question is answered with yes.

    Python drops an interrupt that comes while a destructor runs, so another follows after a while. One that comes after
    the block is ignored.
    """
    main = threading.main_thread().ident
    assert main == threading.get_ident()
    is_over = threading.Event()

    def raise_in_block(_number: int, _frame: object) -> None:
        if not is_over.is_set():
            raise KeyboardInterrupt

    def interrupt() -> None:
        wait_until(question)
        while not is_over.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            is_over.wait(NEXT_INTERRUPT_SECONDS)

    before = signal.signal(signal.SIGINT, raise_in_block)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            yield
        finally:
            is_over.set()
    interrupter.join()
    signal.signal(signal.SIGINT, before)


# --- calling
def test_a_program_without_a_loop_runs_an_app_and_submits_to_it(app: App) -> None:
    with app.sync.running() as front:
        task = front.submit(greet("mule"), task_id="t", priority=9)
        assert (task.id, task.created) == ("t", True)
        assert task.result(timeout=SECONDS_MAX) == "hello mule"
        assert front.submit(echo("a step alone")).result(timeout=SECONDS_MAX) == "a step alone"
        view = task.view()
        assert (view.state, view.priority) == ("processed", 9)


def test_a_handle_by_id_reads_the_result_as_its_declared_type(app: App) -> None:
    with app.sync.running() as front:
        front.submit(greet("mule"), task_id="t")
        assert front.task("t", greet).result(SECONDS_MAX) == "hello mule"
        assert front.task("t").result(SECONDS_MAX) == "hello mule"


def test_a_call_alone_opens_the_app_as_a_client_that_runs_nothing(app: App, machine: Machine) -> None:
    assert new_threads.names() == []
    with app.sync as front:
        task = front.submit(greet("mule"))
        assert (task.view().state, task.view().waiting_for) == ("pending", "a Scheduler")
    assert asyncio.run(machine.events("process.started", "task.claimed")) == []


def test_a_client_hears_of_the_end_of_what_another_process_ran(app: App, machine: Machine) -> None:
    runner = machine.app([echoes], [greet])
    with app.sync as client, runner.sync.running():
        assert client.submit(greet("mule")).result(SECONDS_MAX) == "hello mule"


def test_errors_of_the_app_come_through_as_they_are_with_the_caller_s_line(app: App) -> None:
    def the_caller(task: SyncTask[None]) -> None:
        task.result(SECONDS_MAX)

    with app.sync.running() as front:
        with pytest.raises(TaskFailed, match="ZeroDivisionError: a bug") as failed:
            the_caller(front.submit(buggy()))
        assert (failed.value.state, failed.value.code) == ("held", "bug")
        assert {"the_caller", "result", "_read_output"} <= {frame.name for frame in traceback.extract_tb(failed.tb)}
        with pytest.raises(UnknownTask, match="no task 'nobody'"):
            front.task("nobody").view()
        with pytest.raises(InvalidInput, match="priority is 10"):
            front.submit(greet("mule"), priority=10)
        with pytest.raises(InvalidInput, match="task_id"):
            front.task("")


def test_a_wait_that_times_out_leaves_the_task_going(app: App) -> None:
    with app.sync.running() as front:
        task = front.submit(nap(0.3))
        with pytest.raises(TimeoutError, match="it continues"):
            task.result(timeout=0.01)
        assert task.result(SECONDS_MAX) == "awake"


def test_many_threads_call_at_once_through_one_background_thread(app: App, machine: Machine) -> None:
    fronts: set[int] = set()

    def request(number: int) -> str:
        fronts.add(id(app.sync))
        return app.sync.submit(greet(str(number)), task_id=f"t{number}").result(SECONDS_MAX)

    with app.sync.running(), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(request, range(60))) == [f"hello {number}" for number in range(60)]
        assert len([name for name in new_threads.names() if name == "arriero-sync-machine"]) == 1
    assert len(fronts) == 1
    asyncio.run(machine.check())


def test_the_first_calls_of_many_threads_open_the_app_once(app: App) -> None:
    together = threading.Barrier(8)

    def request(number: int) -> str:
        together.wait()
        return app.sync.submit(greet("mule"), task_id=f"t{number}").view().state

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(request, range(8))) == ["pending"] * 8
    assert app.session.users == 1
    with app.sync:
        pass


def test_a_step_that_runs_in_a_thread_may_call_it_too(machine: Machine) -> None:
    agent = Agent("mules")

    @agent.step
    def pass_on(attempt: Attempt, text: str) -> str:
        return app.sync.submit(greet(text), task_id="inner").id

    @workflow
    async def outer() -> str:
        return await pass_on("mule")

    app = machine.app([echoes, agent], [greet, outer])
    with app.sync.running() as front:
        assert front.submit(outer()).result(SECONDS_MAX) == "inner"
        assert front.task("inner", greet).result(SECONDS_MAX) == "hello mule"


def test_an_interrupt_ends_the_wait_and_cancels_the_call(app: App) -> None:
    with app.sync as front:
        task = front.submit(greet("mule"))
        with interrupted_once(app.session.waiting.is_awaited):
            task.result()
        wait_until(lambda: not app.session.waiting.is_awaited())
        assert task.view().state == "pending"


def test_the_front_of_a_subclass_calls_what_the_subclass_has(machine: Machine) -> None:
    class Labelled(App):
        async def submit(self, call: Any, *, task_id: str | None = None, **options: Any) -> Task[Any]:
            return await super().submit(call, task_id=f"label-{task_id}", **options)

    app = Labelled("labelled", agents=[echoes], workflows=[greet], store=machine.url)
    with app.sync as front:
        assert front.submit(greet("mule"), task_id="t").id == "label-t"


def test_a_call_with_missing_arguments_names_the_front(app: App) -> None:
    with app.sync as front, pytest.raises(TypeError, match=r"^SyncApp\.submit\(\) missing"):
        front.submit()  # type: ignore[call-overload]


# --- replies, verbs, many tasks, joint transactions
def test_replies_come_in_order_and_end_when_none_came_in_time(app: App) -> None:
    with app.sync.running() as front:
        front.submit(greet("mule"), task_id="t", reply_to="web-1").result(SECONDS_MAX)
        heard = [(status.task_id, status.kind) for status in front.replies("web-1", timeout=0)]
    assert heard == [("t", "received"), ("t", "started"), ("t", "completed")]


def test_a_reply_is_acknowledged_by_taking_the_next(app: App) -> None:
    with app.sync as front:
        for task_id in ("a", "b", "c"):
            front.submit(greet("mule"), task_id=task_id, reply_to="web-1")
        replies = front.replies("web-1")
        assert [next(replies).task_id, next(replies).task_id] == ["a", "b"]
        assert next(front.replies("web-1")).task_id == "b"
        assert [status.task_id for status in front.replies("web-1", timeout=0)] == ["b", "c"]
        assert list(front.replies("web-1", timeout=0)) == []


def test_a_wait_for_replies_that_ended_in_time_loses_none(app: App) -> None:
    with app.sync as front:
        assert list(front.replies("web-1", timeout=0)) == list(front.replies("web-1", timeout=0.01)) == []
        front.submit(greet("mule"), task_id="t", reply_to="web-1")
        assert next(front.replies("web-1", timeout=SECONDS_MAX)).task_id == "t"


def test_replies_go_on_after_the_front_was_closed_in_between(app: App) -> None:
    for task_id in ("a", "b", "c"):
        app.sync.submit(greet("mule"), task_id=task_id, reply_to="web-1")
    heard = []
    for status in app.sync.replies("web-1", timeout=0):
        heard.append(status.task_id)
        with app.sync:
            pass
    assert heard == ["a", "b", "c"]
    assert list(app.sync.replies("web-1", timeout=0)) == []
    with app.sync:
        pass


def test_an_interrupt_ends_the_wait_for_replies(app: App) -> None:
    with app.sync as front:
        replies = front.replies("web-1")
        background = front._background._loop
        assert background is not None

        with interrupted_once(lambda: background.calls):
            next(replies)
        front.submit(greet("mule"), task_id="t", reply_to="web-1")
        assert next(front.replies("web-1", timeout=SECONDS_MAX)).task_id == "t"


def test_what_is_wrong_with_a_wait_for_replies_is_said_before_it_begins(app: App) -> None:
    with app.sync as front:
        with pytest.raises(InvalidInput, match="timeout"):
            front.replies("web-1", timeout=-1)
        with pytest.raises(InvalidInput, match="reply queue"):
            front.replies("")


def test_every_verb_of_a_task_is_there_and_does_what_it_says(app: App) -> None:
    who = {"by": "ann", "reason": "a test"}
    with app.sync.running() as front:
        front.submit(buggy(), task_id="t")
        task = front.task("t", buggy)
        with pytest.raises(TaskFailed):
            task.result(SECONDS_MAX)
        with pytest.raises(VerbRefused, match="pause"):
            task.pause(**who)
        task.compensate(**who)
        with pytest.raises(TaskCompensated):
            task.result(SECONDS_MAX)
    with app.sync as front:
        waiting = front.submit(greet("mule"), task_id="u")
        waiting.pause(**who)
        assert waiting.view().paused
        waiting.resume(**who)
        assert not waiting.view().paused
        with pytest.raises(InvalidInput):
            waiting.answer(step="echo", result="hi", **who)


def test_the_front_forwards_every_public_method_there_is_with_its_parameters() -> None:
    def parameters(method: Any) -> dict[str, str]:
        return {name: str(parameter) for name, parameter in inspect.signature(method).parameters.items()}

    for front, of in ((SyncTask, Task), (SyncTasks, Tasks), (SyncSchedules, Schedules), (SyncApp, App)):
        names = {name for name, value in vars(of).items() if callable(value) and not name.startswith("_")}
        for name in names - {"on_alert", "schedule", "service", "submit_ledger", "trace", "workflow"}:
            more = {"timeout"} if name == "replies" else set()
            wanted, found = parameters(getattr(of, name)), parameters(getattr(front, name))
            assert {key: text for key, text in found.items() if key not in more} == wanted, name


def test_many_tasks_are_counted_looked_through_and_acted_on(app: App) -> None:
    with app.sync as front:
        ids = [front.submit(greet("mule"), task_id=f"t{number}").id for number in range(5)]
        pending = front.tasks(state="pending")
        assert pending.count() == 5
        assert [view.id for view in pending] == ids
        assert next(iter(pending)).id == "t0"
        assert [view.id for view in front.tasks(since=3_600).newest(2)] == ["t4", "t3"]
        assert pending.pause(by="ann", reason="a test", dry_run=True).done == tuple(ids)
        assert pending.pause(by="ann", reason="a test").done == tuple(ids)
        assert front.tasks(paused=True).count() == 5
        assert pending.pause(by="ann", reason="a test").left_out == (("paused already", 5),)
        with pytest.raises(InvalidInput, match="state 'sad'"):
            front.tasks(state="sad")


def test_looking_through_tasks_does_not_end_early_when_the_front_was_closed_in_between(app: App) -> None:
    for number in range(3):
        app.sync.submit(greet("mule"), task_id=f"t{number}")
    views = iter(app.sync.tasks(state="pending"))
    assert next(views).id == "t0"
    with app.sync:
        pass
    with pytest.raises(InvalidInput, match="was closed.*make a list"):
        next(views)
    with app.sync:
        pass


def test_a_submission_joins_the_caller_s_transaction_in_the_caller_s_thread(app: App, machine: Machine) -> None:
    with app.sync as front, closing(arriero.connect(machine.url)) as connection:
        connection.execute("CREATE TABLE reminder (address TEXT)")
        for address, ends in (("a@b", connection.rollback), ("c@d", connection.commit)):
            connection.execute("INSERT INTO reminder VALUES (?)", (address,))
            task = front.submit(greet("mule"), task_id=address, connection=connection)
            ends()
        with pytest.raises(UnknownTask):
            front.task("a@b").view()
        assert (task.id, task.view().state) == ("c@d", "pending")
        assert connection.execute("SELECT address FROM reminder").fetchall() == [("c@d",)]
        with front.running():
            assert task.result(SECONDS_MAX) == "hello mule"


# --- refused
async def test_on_an_event_loop_every_call_is_refused_and_names_the_async_front(app: App, machine: Machine) -> None:
    front = app.sync
    uses: list[Callable[[], Any]] = [
        lambda: front.submit(greet("mule")),
        lambda: front.submit(greet("mule"), connection=object()),
        lambda: front.replies("web-1"),
        front.tasks(state="held").count,
        lambda: next(iter(front.tasks())),
        front.task("t").result,
        front.task("t").view,
        front.__enter__,
        front.running().__enter__,
    ]
    for use in uses:
        with pytest.raises(InvalidInput, match=r"app\.sync of App machine was called on an event loop.*await app"):
            use()
    assert not machine.path.exists()


async def test_a_call_from_the_loop_that_the_app_is_open_on_is_refused_and_one_from_a_thread_is_not(app: App) -> None:
    async with app:
        await asyncio.to_thread(app.sync.submit, greet("mule"), task_id="t")
        with pytest.raises(InvalidInput, match="on an event loop"):
            app.sync.task("t").view()
    await asyncio.to_thread(lambda: app.sync.__enter__().__exit__())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"roles": ["watcher"]}, "role 'watcher'"),
        ({"agents": ["nobody"]}, "Agent 'nobody'"),
        ({"store": "x"}, "store 'x'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_opened(
    app: App, machine: Machine, options: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidInput, match=what):
        app.sync.running(**options)
    assert not machine.path.exists()


def test_running_twice_is_refused_and_the_first_goes_on(app: App) -> None:
    with app.sync.running() as front:
        with pytest.raises(InvalidInput, match="is running already"), app.sync.running():
            raise AssertionError("never reached")
        assert front.submit(greet("mule")).result(SECONDS_MAX) == "hello mule"


def test_a_store_that_cannot_be_opened_is_said_and_asked_again_by_the_next_call(tmp_path: Path) -> None:
    app = App("later", workflows=[greet], agents=[echoes], store=f"sqlite:///{tmp_path}/folder/store.db")
    for _ in range(2):
        with pytest.raises(StoreError, match="create it"):
            app.sync.submit(greet("mule"))
        assert new_threads.names() == []
    (tmp_path / "folder").mkdir()
    with app.sync as front:
        assert front.submit(greet("mule")).view().state == "pending"


# --- closing
def test_a_client_that_was_closed_and_opened_again_still_hears_of_ends(app: App, machine: Machine) -> None:
    runner = machine.app([echoes], [greet])
    with app.sync as front:
        task = front.submit(greet("mule"))
        with pytest.raises(TimeoutError):
            task.result(timeout=0.05)
    with app.sync, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(task.result, SECONDS_MAX)
        wait_until(app.session.waiting.is_awaited)
        with runner.sync.running():
            assert waits.result(SECONDS_MAX) == "hello mule"


def test_leaving_the_last_block_closes_and_the_next_call_opens_again(app: App) -> None:
    with app.sync as front:
        task = front.submit(greet("mule"))
        with app.sync:
            pass
        assert task.view().state == "pending"
    assert app.session._store is None
    assert new_threads.names() == []
    assert task.view().state == "pending"
    with app.sync.running():
        assert task.result(SECONDS_MAX) == "hello mule"
    with app.sync:
        assert task.result(SECONDS_MAX) == "hello mule"
        assert front.task("t" * 9).id == "t" * 9


def test_leaving_a_running_app_drains_even_after_an_error(app: App, machine: Machine) -> None:
    with pytest.raises(LookupError), app.sync.running() as front:
        front.submit(greet("mule")).result(SECONDS_MAX)
        raise LookupError
    assert app.session._store is None
    assert [event["process"] for event in asyncio.run(machine.events("process.retired"))] == [1]
    asyncio.run(machine.check())


def test_running_inside_a_client_s_block_leaves_the_client_open(app: App) -> None:
    with app.sync as front:
        with front.running(roles=["scheduler", "agents"]):
            assert front.submit(greet("mule")).result(SECONDS_MAX) == "hello mule"
        assert front.submit(greet("mule")).view().state == "pending"


def test_a_block_outlives_roles_that_were_entered_before_it_and_left_first(app: App, machine: Machine) -> None:
    roles = app.sync.running(roles=["supervisor"])
    roles.__enter__()
    with app.sync as front, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(front.submit(greet("mule")).result, SECONDS_MAX)
        wait_until(app.session.waiting.is_awaited)
        roles.__exit__(None, None, None)
        with machine.app([echoes], [greet]).sync.running():
            assert waits.result(SECONDS_MAX) == "hello mule"


def test_a_call_that_waits_while_it_is_closed_is_told_so(app: App) -> None:
    with ThreadPoolExecutor(1) as pool:
        with app.sync as front:
            waits = pool.submit(front.submit(greet("mule")).result)
            wait_until(app.session.waiting.is_awaited)
        with pytest.raises(InvalidInput, match="was closed while a call waited"):
            waits.result(SECONDS_MAX)


# --- processes: each of these programs is one of its own
HEAD = """
import os, sys, threading
import arriero
from arriero import Agent, App, Attempt, InvalidInput, workflow

echoes = Agent("echoes")

@echoes.step
async def echo(attempt: Attempt, text: str) -> str:
    return text

@workflow
async def greet(name: str) -> str:
    return "hello " + await echo(name)

app = App("machine", agents=[echoes], workflows=[greet], store=sys.argv[1])

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}")
        finally:
            sys.stdout.flush()
            os._exit(0)
    return child

def ended(child):
    assert os.waitpid(child, 0)[1] == 0
"""


def program(machine: Machine, text: str) -> list[str]:
    """What it says. It must end by itself, in peace."""
    command = [sys.executable, "-W", "error", "-c", HEAD + text, machine.url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=3 * SECONDS_MAX, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def tasks_kept(machine: Machine) -> set[str]:
    return {event["task"] for event in asyncio.run(machine.events("task.submitted"))}


def is_closed(machine: Machine) -> bool:
    """Who closes a SQLite file last removes its log."""
    return machine.path.exists() and not Path(f"{machine.path}-wal").exists()


def test_a_forked_child_opens_the_app_anew_and_nothing_it_commits_is_lost_when_the_parent_closes(
    machine: Machine,
) -> None:
    said = program(
        machine,
        """
app.sync.submit(greet("mule"), task_id="before")
to_child, to_parent = os.pipe(), os.pipe()

def work():
    print(app.sync.task("before").view().state)
    app.sync.submit(greet("mule"), task_id="child")
    os.write(to_parent[1], b"x")
    os.read(to_child[0], 1)
    app.sync.submit(greet("mule"), task_id="child, later")

child = in_child(work)
os.read(to_parent[0], 1)
with app.sync:
    app.sync.submit(greet("mule"), task_id="parent")
with App("another", store=sys.argv[1]).sync:  # the last to close the file moves the log into it
    pass
os.write(to_child[1], b"x")
ended(child)
""",
    )
    assert said == ["pending"]
    assert tasks_kept(machine) == {"before", "child", "parent", "child, later"}
    asyncio.run(machine.check(complete=False))


def test_a_reader_of_replies_may_fork_for_each(machine: Machine) -> None:
    said = program(
        machine,
        """
for task_id in ("a", "b", "c"):
    app.sync.submit(greet("mule"), task_id=task_id, reply_to="web-1")
for status in app.sync.replies("web-1", timeout=0):
    ended(in_child(lambda: print(status.task_id, app.sync.task(status.task_id).view().state)))
""",
    )
    assert said == ["a pending", "b pending", "c pending"]


def test_forks_beside_busy_threads_wait_for_their_calls(machine: Machine) -> None:
    said = program(
        machine,
        """
begun, done, counts = threading.Event(), threading.Event(), []

def busy(number):
    count = 0
    while not done.is_set():
        app.sync.submit(greet("mule"), task_id=f"{number}-{count}")
        count += 1
        begun.set()
    counts.append(count)

threads = [threading.Thread(target=busy, args=[number]) for number in range(3)]
for thread in threads:
    thread.start()
begun.wait()
for number in range(5):
    ended(in_child(lambda: app.sync.submit(greet("mule"), task_id=f"child-{number}")))
done.set()
for thread in threads:
    thread.join()
print(sum(counts))
""",
    )
    kept = tasks_kept(machine)
    assert {f"child-{number}" for number in range(5)} <= kept
    assert [str(len(kept) - 5)] == said
    asyncio.run(machine.check(complete=False))


def test_a_child_forked_while_roles_run_is_refused_and_the_parent_goes_on(machine: Machine) -> None:
    said = program(
        machine,
        """
with app.sync.running():
    ended(in_child(lambda: app.sync.submit(greet("child"), task_id="child")))
    print(app.sync.submit(greet("mule"), task_id="parent").result())
""",
    )
    assert said[0].startswith("InvalidInput: App machine was open when this process was forked")
    assert said[1:] == ["hello mule"]
    assert tasks_kept(machine) == {"parent"}


def test_a_program_that_never_closes_ends_at_once_and_closes(machine: Machine) -> None:
    assert program(machine, 'print(app.sync.submit(greet("mule"), task_id="t").view().state)') == ["pending"]
    assert is_closed(machine)
    assert tasks_kept(machine) == {"t"}


def test_a_thread_that_still_waits_does_not_hold_up_the_exit(machine: Machine) -> None:
    said = program(
        machine,
        """
def wait():
    print("waits", flush=True)
    app.sync.submit(greet("mule"), task_id="t").result(timeout=1000)

threading.Thread(target=wait, daemon=True).start()
while not app.session.waiting.is_awaited():
    threading.Event().wait(0.01)
""",
    )
    assert said == ["waits"]
    assert tasks_kept(machine) == {"t"}


def test_the_end_of_the_main_thread_drains_and_threads_that_outlive_it_may_still_submit(machine: Machine) -> None:
    said = program(
        machine,
        """
def serve():
    with app.sync.running():
        print(app.sync.submit(greet("mule"), task_id="t").result())
        runs.set()
        threading.main_thread().join()
        while app.session.node is not None:
            threading.Event().wait(0.01)
    print(app.sync.submit(greet("mule"), task_id="u").view().state)

runs = threading.Event()
threading.Thread(target=serve).start()
runs.wait()
""",
    )
    assert said == ["hello mule", "pending"]
    assert [event["process"] for event in asyncio.run(machine.events("process.retired"))] == [1]


def test_a_front_that_is_first_used_after_the_main_thread_ended_still_works(machine: Machine) -> None:
    said = program(
        machine,
        """
def serve():
    threading.main_thread().join()
    print(app.sync.submit(greet("mule"), task_id="t").view().state)

threading.Thread(target=serve).start()
""",
    )
    assert said == ["pending"]
    assert tasks_kept(machine) == {"t"}


def test_roles_that_were_never_left_are_drained_at_the_exit(machine: Machine) -> None:
    said = program(
        machine,
        """
app.sync.running().__enter__()
print(app.sync.submit(greet("mule"), task_id="t").result())
""",
    )
    assert said == ["hello mule"]
    assert is_closed(machine)
    assert [event["process"] for event in asyncio.run(machine.events("process.retired"))] == [1]
    asyncio.run(machine.check(complete=False))
