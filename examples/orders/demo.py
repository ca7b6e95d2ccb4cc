"""The main job: a shop's orders run, die, recover and balance.

Three kinds of processes beside this one: the remote services, which fail as the seed says; a submission, which turns
the ledger into tasks; and a worker with Scheduler, Agents and Supervisor, killed while it works and started again.
Then the services' own book is held against the tasks' states, and the recorded history is checked.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console

from .books import balance
from .effects import read_effects
from .faults import LEVELS, FaultPlan, planned_faults
from .generated import write_ledger
from .ledger import Ledger, LedgerError, read_ledger
from .processes import Process, ProcessFailed, RemoteServices, Worker, check_history, start_submission
from .progress import SQLITE, Counts, store_path, task_counts, task_states, unpaired
from .summary import Summary, as_figures, show
from .view import View, open_view

SECONDS_MAX_BASE = 120.0
SECONDS_MAX_PER_ORDER = 0.12
"""When a run counts as stuck: several times what it takes on two cores in a storm."""
BREAKAGES = ("dedup", "refund", "fence")
LOOKS_PER_SECOND = 20
ORDERS_PER_LOOK = 2_000
"""A look at the store reads every row once; with more orders than this they are counted less often."""
KILLS_EARLY = 0.8
"""The kills are spread evenly over the orders, drawn together a little so that the last finds work in flight."""


@dataclass(frozen=True)
class Plan:
    """What is to be shown: ``run_demo``'s options, with every path absolute."""

    folder: Path
    store_url: str
    ledger_path: Path
    ledger: Ledger
    faults: FaultPlan
    kills: int
    broken: str | None

    @property
    def orders(self) -> int:
        return len(self.ledger.orders)

    @property
    def seconds_max(self) -> float:
        return SECONDS_MAX_BASE + SECONDS_MAX_PER_ORDER * self.orders


@dataclass
class Course:
    """What has happened so far."""

    began_at: float = field(default_factory=time.monotonic)
    counts: Counts = field(default_factory=Counts)
    kills: int = 0
    steps_done_at_kill: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_at


class UnusableOptions(Exception):
    """The demonstration cannot begin as asked; the message says why."""


def run_demo(
    orders: int = 500,
    ledger: Path | None = None,
    faults: str = "some",
    kills: int = 2,
    seed: int = 1,
    broken: str | None = None,
    as_json: bool = False,
    store: str | None = None,
    keep: Path | None = None,
) -> int:
    """Run the demonstration and print what it showed.

    Args:
        orders: lines of the generated ledger; not used with ``ledger``.
        ledger: a file to read instead, gzipped or plain.
        faults: ``none``, ``some`` or ``storm``.
        kills: how often the worker is killed while work is in flight.
        seed: decides the generated ledger and every fault.
        broken: ``dedup``, ``refund`` or ``fence``: break that on purpose, which must be found out.
        as_json: print the figures to standard output and nothing else there.
        store: a store of the demonstration's own, ``sqlite:///PATH``; a file that does not exist yet.
        keep: a folder in which everything is left for looking at; otherwise a temporary one is used.
    Returns: the exit code: 0 when the books balance, the history is clean and all that was planned happened; 1 when
        not; 2 when it could not begin.
    """
    progress = Console(stderr=as_json)
    try:
        with _ending_on_sigterm(), _folder(keep) as folder:
            plan = _plan(folder, orders, ledger, FaultPlan(faults, seed), kills, broken, store)
            summary = _demonstrate(plan, progress)
    except (UnusableOptions, LedgerError) as error:
        print(error, file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps(as_figures(summary), indent=2))
    else:
        show(summary, Console())
    return 0 if summary.is_success else 1


def _plan(
    folder: Path, orders: int, ledger: Path | None, faults: FaultPlan, kills: int, broken: str | None, store: str | None
) -> Plan:
    if faults.level not in LEVELS:
        raise UnusableOptions(f"there are no faults called {faults.level!r}, only {', '.join(LEVELS)}")
    if broken not in (None, *BREAKAGES):
        raise UnusableOptions(f"nothing called {broken!r} can be broken, only {', '.join(BREAKAGES)}")
    try:
        path = store_path(store).absolute() if store else folder / "tasks.sqlite"
    except ValueError as error:
        raise UnusableOptions(str(error)) from error
    for own in (path, folder / "book.sqlite"):
        if own.exists():
            raise UnusableOptions(f"{own} exists: the demo balances its books from nothing, give it a fresh place")
    ledger_path = ledger.absolute() if ledger else folder / "ledger.csv"
    if ledger is None:
        write_ledger(ledger_path, orders, faults.seed)
    read = read_ledger(ledger_path)
    if not read.orders:
        raise UnusableOptions(f"the ledger {ledger_path} holds no order that can be handled")
    return Plan(folder, f"{SQLITE}{path}", ledger_path, read, faults, kills, broken)


def _demonstrate(plan: Plan, console: Console) -> Summary:
    course = Course()
    fired: dict[str, int] | None = None
    with ExitStack() as stack:
        try:
            services = RemoteServices(plan.folder, faults=plan.faults.level, seed=plan.faults.seed, broken=plan.broken)
            stack.callback(services.process.kill)
            with open_view(console, plan.orders) as view:
                _run(plan, course, services.url, view)
            fired = services.faults_fired()
            services.process.stop()
        except ProcessFailed as failed:
            course.problems.append(str(failed))
    return _summary(plan, course, fired)


def _run(plan: Plan, course: Course, services_url: str, view: View) -> None:
    """Submit and work until every task has ended, killing the worker on the way.

    Raises: ProcessFailed - a process ended that should not have, or could not be stopped.
    """
    with ExitStack() as stack:
        submission = start_submission(plan.folder, plan.store_url, plan.ledger_path)
        stack.callback(submission.kill)
        worker = Worker(plan.folder, plan.store_url, services_url, plan.broken)
        stack.callback(worker.kill)
        seconds_per_look = max(1.0, plan.orders / ORDERS_PER_LOOK) / LOOKS_PER_SECOND
        while not _has_ended(plan, course, submission):
            if course.seconds > plan.seconds_max:
                course.problems.append(f"not every order had ended after {plan.seconds_max:.0f} seconds")
                break
            worker.check()
            course.counts = task_counts(plan.store_url)
            if _is_kill_due(plan, course):
                worker.kill()
                _count_kill(plan, course)
                worker.start()
            view.show(course.counts, course.kills)
            time.sleep(seconds_per_look)
        worker.stop()


def _has_ended(plan: Plan, course: Course, submission: Process) -> bool:
    code = submission.code()
    if code is None:
        return False
    if code != 0:
        raise submission.failure(f"ended with {code}")
    return course.counts.ended >= plan.orders


def _is_kill_due(plan: Plan, course: Course) -> bool:
    if course.kills >= plan.kills or course.counts.steps_running == 0:
        return False
    # What is running may still be what the last kill left behind: the new worker must have got something done itself.
    if course.kills and course.counts.steps_done <= course.steps_done_at_kill:
        return False
    return course.counts.ended >= int(KILLS_EARLY * plan.orders * (course.kills + 1) / (plan.kills + 1))


def _count_kill(plan: Plan, course: Course) -> None:
    """Count a kill that hit work in flight; between the look and the kill it may all have been finished."""
    left = task_counts(plan.store_url)
    course.steps_done_at_kill = left.steps_done
    if left.steps_running:
        course.kills += 1


def _summary(plan: Plan, course: Course, fired: dict[str, int] | None) -> Summary:
    seconds = course.seconds
    states = task_states(plan.store_url)
    book = plan.folder / "book.sqlite"
    books = balance(plan.ledger.orders, states, read_effects(book) if book.exists() else ())
    history = check_history(plan.folder, plan.store_url, plan.seconds_max)
    planned = planned_faults(plan.faults, plan.ledger.orders)
    problems = list(course.problems)
    # Unknown when a process failed before the services were asked; that is a problem of its own, and listed already.
    if fired is not None and (missing := sorted(kind for kind in planned if not fired.get(kind))):
        problems.append(f"planned faults that never fired: {', '.join(missing)}")
    if course.kills < plan.kills:
        problems.append(f"only {course.kills} of {plan.kills} kills found work in flight")
    if history is not None:
        problems.append(history)
    rows_alone, tasks_alone = unpaired(plan.store_url) if states else ([], [])
    if rows_alone or tasks_alone:
        problems.append(f"orders without a task: {rows_alone[:5]}, tasks without an order: {tasks_alone[:5]}")
    return Summary(
        orders=plan.orders,
        set_aside=plan.ledger.set_aside,
        counts=task_counts(plan.store_url),
        seconds=seconds,
        kills=course.kills,
        kills_planned=plan.kills,
        faults_planned=planned,
        faults_fired=fired or {},
        books=books,
        is_history_clean=history is None,
        problems=tuple(problems),
    )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="arriero-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableOptions(f"{keep} cannot be used as a folder: {error}") from error
    yield keep.absolute()


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that no process of ours is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
