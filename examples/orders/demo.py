"""The main job: a shop's orders run, die, recover and balance.

Three kinds of processes beside this one: the remote services, which fail as the seed says; a submission, which turns
the ledger into tasks, each customer's in one convoy; and workers with Scheduler, Agents and Supervisor, killed while they
work and started again. Then the services' own book is held against the tasks' states, also for the order in which each
customer's were handled, and the recorded history is checked.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from arriero.core.lease import HELD_FROM
from arriero.errors import MutilatedExport

from .api import Api, serve_until_interrupted
from .books import balance
from .effects import read_effects
from .election import LEADER_KILLED, LEADER_KILLS, ElectionCourse, find_election_problems
from .faults import LEVELS, FaultPlan, planned_faults
from .generated import write_ledger
from .ledger import Ledger, LedgerError, read_ledger
from .next_steps import next_steps
from .operations import SERVICES
from .outage import Outage, OutageCourse
from .outage_report import OutageReport, read_outage_report
from .places import NotReadable, Place, UnusablePlace, new_place
from .processes import HISTORY, Process, ProcessFailed, RemoteServices, Worker, check_history, start_submission
from .progress import Counts, Held, held, task_counts, task_lives, unpaired
from .summary import Summary, as_figures, show
from .turns import Life, check_turns
from .view import View, open_view

SECONDS_MAX_BASE = 120.0
SECONDS_MAX_PER_ORDER = 0.12
SECONDS_MAX_PER_KILL = 20.0
"""When a run counts as stuck: several times what it takes on two cores in a storm, where a server has to wait for the
lease of a killed worker, and then for the Supervisor's if it was the leader."""
SECONDS_MAX_AFTER_OUTAGE = 120.0
"""Until a breaker has closed: a few canaries that meet another fault, then the ramp."""
BOOK = "book.sqlite"
BREAKAGES = ("dedup", "refund", "fence", "order")
LOOKS_PER_SECOND = 20
ORDERS_PER_LOOK = 2_000
"""A look at the store reads every row once; with more orders than this they are counted less often."""
SETTLE_SECONDS = 0.02
"""For what a frozen worker has sent already to be carried out."""
KILLS_EARLY = 0.8
"""The kills are spread evenly over the orders, drawn together a little so that the last finds work in flight."""


@dataclass(frozen=True)
class Plan:
    """What is to be shown: ``run_demo``'s options, with every path absolute."""

    folder: Path
    place: Place
    ledger_path: Path
    ledger: Ledger
    faults: FaultPlan
    broken: str | None
    outage: Outage | None
    processes: int = 1
    kills: int = 0
    supervisors: int = 0

    @property
    def orders(self) -> int:
        return len(self.ledger.orders)

    @property
    def seconds_max(self) -> float:
        of_outage = 0.0 if self.outage is None else self.outage.seconds + SECONDS_MAX_AFTER_OUTAGE
        kills = self.kills + (LEADER_KILLS if self.supervisors else 0)
        return SECONDS_MAX_BASE + SECONDS_MAX_PER_ORDER * self.orders + SECONDS_MAX_PER_KILL * kills + of_outage


@dataclass
class Course:
    """What has happened so far. ``outage``, ``election`` None: none is asked for, or the services have not started.

    ``calls_while_down``: that reached the service of the outage meanwhile; None: nobody has asked it.
    """

    began_at: float = field(default_factory=time.monotonic)
    counts: Counts = field(default_factory=Counts)
    kills: int = 0
    outage: OutageCourse | None = None
    election: ElectionCourse | None = None
    calls_while_down: int | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_at

    @property
    def happenings(self) -> tuple[OutageCourse | ElectionCourse, ...]:
        """What happens beside the orders, and must be over before the demonstration ends."""
        return tuple(happening for happening in (self.outage, self.election) if happening is not None)


class UnusableOptions(Exception):
    """The demonstration cannot begin as asked; the message says why."""


def run_demo(
    orders: int = 500,
    ledger: Path | None = None,
    faults: str = "some",
    processes: int = 1,
    kills: int = 2,
    seed: int = 1,
    broken: str | None = None,
    as_json: bool = False,
    store: str | None = None,
    keep: Path | None = None,
    outage: tuple[str, float] | None = None,
    supervisors: int = 0,
    serve: bool = False,
) -> int:
    """Run the demonstration and print what it showed.

    Args:
        orders: lines of the generated ledger; not used with ``ledger``.
        ledger: a file to read instead, gzipped or plain.
        faults: ``none``, ``some`` or ``storm``.
        processes: how many workers share the tasks.
        kills: how often one of them is killed while it has work in flight.
        seed: decides the generated ledger and every fault.
        broken: ``dedup``, ``refund``, ``fence`` or ``order``: break that on purpose, which must be found out.
        as_json: print the figures to standard output and nothing else there.
        store: ``sqlite:///PATH``, a file that does not exist yet; or ``postgresql://...``, a database in which a schema
            of the demonstration's own is made, ``?schema=NAME`` or one that nobody has.
        keep: a folder in which everything is left for looking at, as is the schema on a server; otherwise a temporary
            one is used.
        outage: the name of an Agent, and for how many seconds its service is down from when a tenth of the orders has
            ended; more than 0.
        supervisors: processes that supervise, while the workers do not; the one that leads is killed several times. 0: the
            workers supervise.
        serve: run the HTTP API beside it, print its address and a token, and keep serving at the end until Ctrl-C.
    Returns: the exit code: 0 when the books balance, each customer's orders were handled in their order, the history is
        clean and all that was planned happened; 1 when not; 2 when it could not begin.
    """
    progress = Console(stderr=as_json)
    try:
        with _ending_on_signals(), _folder(keep) as folder:
            place = new_place(store, folder)
            plan = _plan(folder, place, orders, ledger, FaultPlan(faults, seed), broken, outage)
            plan = replace(plan, processes=processes, kills=kills, supervisors=supervisors)
            with place.made(keep=keep is not None), ExitStack() as stack:
                if serve:
                    api = Api(plan.folder, place.url)
                    stack.callback(api.process.kill)
                    progress.out(*api.describe(), sep="\n", highlight=False)
                summary = _demonstrate(plan, progress)
                _print_summary(summary, place, as_json=as_json, kept=_describe_keeping(keep, is_served=serve))
                if serve:  # once more: many lines were printed since
                    progress.out("", *api.describe(), sep="\n", highlight=False)
                    progress.out("serving until Ctrl-C; one worker carries out what comes", highlight=False)
                    serve_until_interrupted(plan)
    except ProcessFailed as error:
        print(error, file=sys.stderr)
        return 1
    except (UnusableOptions, UnusablePlace, LedgerError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if summary.is_success else 1


def _describe_keeping(keep: Path | None, *, is_served: bool) -> str | None:
    """How long the store is kept; None: not longer than the demonstration runs."""
    if keep is not None:
        return "What happened is kept."
    return "What happened is kept until Ctrl-C, use another terminal." if is_served else None


def _print_summary(summary: Summary, place: Place, *, as_json: bool, kept: str | None) -> None:
    if as_json:
        print(json.dumps(as_figures(summary), indent=2), flush=True)
    else:
        show(summary, Console())
        print(*_next_steps(place, kept), sep="\n", flush=True)


def _next_steps(place: Place, kept: str | None) -> Iterator[str]:
    if kept is None:
        return next_steps(None, {})
    try:
        return next_steps(place.url, task_lives(place), kept)
    except NotReadable:  # a problem that was told of before
        return next_steps(None, {})


def _plan(
    folder: Path,
    place: Place,
    orders: int,
    ledger: Path | None,
    faults: FaultPlan,
    broken: str | None,
    outage: tuple[str, float] | None,
) -> Plan:
    if faults.level not in LEVELS:
        raise UnusableOptions(f"there are no faults called {faults.level!r}, only {', '.join(LEVELS)}")
    if broken not in (None, *BREAKAGES):
        raise UnusableOptions(f"nothing called {broken!r} can be broken, only {', '.join(BREAKAGES)}")
    if outage is not None and outage[0] not in SERVICES:
        raise UnusableOptions(f"the demo has no Agent {outage[0]!r}: name one of {', '.join(SERVICES)}")
    if (book := folder / BOOK).exists():
        raise UnusableOptions(f"{book} exists: the demo balances its books from nothing, give it a fresh place")
    ledger_path = ledger.absolute() if ledger else folder / "ledger.csv"
    if ledger is None:
        write_ledger(ledger_path, orders, faults.seed)
    read = read_ledger(ledger_path)
    if not read.orders:
        raise UnusableOptions(f"the ledger {ledger_path} holds no order that can be handled")
    asked = None if outage is None else Outage(*outage)
    return Plan(folder, place, ledger_path, read, faults, broken, asked)


def _demonstrate(plan: Plan, console: Console) -> Summary:
    course = Course()
    if plan.place.announcement is not None:
        console.out(plan.place.announcement, highlight=False)
    fired: dict[str, int] | None = None
    with ExitStack() as stack:
        try:
            services = RemoteServices(plan.folder, faults=plan.faults.level, seed=plan.faults.seed, broken=plan.broken)
            stack.callback(services.process.kill)
            with open_view(console, plan.orders) as view:
                if plan.outage is not None:
                    course.outage = OutageCourse(plan.outage, plan.place, services, plan.orders, view.announce)
                _run(plan, course, services.url, view)
            fired = services.faults_fired()
            if plan.outage is not None:
                course.calls_while_down = services.calls_while_down(plan.outage.agent)
            services.process.stop()
        except ProcessFailed as failed:
            course.problems.append(str(failed))
    return _summary(plan, course, fired)


def _run(plan: Plan, course: Course, services_url: str, view: View) -> None:
    """Submit and work until every task has ended, killing workers on the way.

    Raises: ProcessFailed - a process ended that should not have, or could not be stopped.
    """
    with ExitStack() as stack:
        if plan.supervisors:
            course.election = ElectionCourse(plan.supervisors, plan.folder, plan.place, plan.orders, view.announce)
            stack.callback(course.election.kill)
        submission = start_submission(plan.folder, plan.place.url, plan.ledger_path, plan.broken)
        stack.callback(submission.kill)
        workers = []
        for name in _worker_names(plan.processes):
            supervises = plan.supervisors == 0
            workers.append(Worker(name, plan.folder, plan.place.url, services_url, plan.broken, supervises=supervises))
            stack.callback(workers[-1].kill)
        seconds_per_look = max(1.0, plan.orders / ORDERS_PER_LOOK) / LOOKS_PER_SECOND
        while not _has_ended(plan, course, submission):
            if course.seconds > plan.seconds_max:
                course.problems.append(f"not every order had ended after {plan.seconds_max:.0f} seconds")
                break
            for worker in workers:
                worker.check()
            with suppress(NotReadable):  # the tables are not there yet, or the server is away for a moment
                course.counts = task_counts(plan.place)
                if _is_kill_due(plan, course):
                    _kill_one(plan, course, workers)
                for happening in course.happenings:
                    happening.look(course.counts.ended)
            view.show(course.counts, course.kills)
            time.sleep(seconds_per_look)
        for worker in workers:
            worker.ask_to_stop()
        for worker in workers:
            worker.wait_stopped()
        if course.election is not None:
            course.election.stop()


def _worker_names(processes: int) -> list[str]:
    return ["worker"] if processes == 1 else [f"worker-{number}" for number in range(1, processes + 1)]


def _has_ended(plan: Plan, course: Course, submission: Process) -> bool:
    code = submission.code()
    if code is None:
        return False
    if code != 0:
        raise submission.failure(f"ended with {code}")
    if course.counts.ended < plan.orders:
        return False
    unsettled = [happening for happening in course.happenings if not happening.is_settled]
    for happening in unsettled:
        happening.note_all_ended()
    return not unsettled


def _is_kill_due(plan: Plan, course: Course) -> bool:
    if course.kills >= plan.kills or course.counts.steps_running == 0:
        return False
    return course.counts.ended >= int(KILLS_EARLY * plan.orders * (course.kills + 1) / (plan.kills + 1))


def _kill_one(plan: Plan, course: Course, workers: list[Worker]) -> None:
    """Kill a worker that has attempts under way, the busiest first, and start the next one in its place.

    It is frozen before the last look, so that what is seen is what is killed. None is killed where a task would lose
    its last chance: a task that loses one process after the other is suspected of killing them, and held for an operator.
    Raises: NotReadable - before anything was killed.
    """
    seen = held(plan.place)
    for worker in sorted(workers, key=lambda each: _steps_running(each, seen), reverse=True):
        if not _may_be_killed(worker, workers, seen):
            continue
        worker.freeze()
        try:
            time.sleep(SETTLE_SECONDS)
            if _may_be_killed(worker, workers, held(plan.place)):
                worker.kill()
                worker.start()
                course.kills += 1
                return
        finally:
            worker.thaw()


def _steps_running(worker: Worker, seen: Sequence[Held]) -> int:
    return sum(process.steps_running for process in seen if worker.is_named(process.instance))


def _may_be_killed(worker: Worker, workers: Sequence[Worker], seen: Sequence[Held]) -> bool:
    return _steps_running(worker, seen) > 0 and not _would_convict(worker, workers, seen)


def _would_convict(worker: Worker, workers: Sequence[Worker], seen: Sequence[Held]) -> bool:
    """Whether a task of this worker is one loss away from being held. Losses that are not written down yet count: what
    a killed worker held is freed, and charged, when its lease has run out."""
    dead = [process for process in seen if not any(each.is_named(process.instance) for each in workers)]
    mine = [process for process in seen if worker.is_named(process.instance)]
    return any(
        lost + sum(task_no in process.tasks for process in dead) + 1 >= HELD_FROM
        for process in mine
        for task_no, lost in process.tasks.items()
    )


def _summary(plan: Plan, course: Course, fired: dict[str, int] | None) -> Summary:
    seconds = course.seconds
    problems = list(course.problems)
    lives: dict[str, Life] = {}
    try:
        lives, counts = task_lives(plan.place), task_counts(plan.place)
        rows_alone, tasks_alone = unpaired(plan.place)
        if rows_alone or tasks_alone:
            problems.append(f"orders without a task: {rows_alone[:5]}, tasks without an order: {tasks_alone[:5]}")
    except NotReadable as error:
        counts = course.counts
        problems.append(str(error))
    book = plan.folder / BOOK
    effects = list(read_effects(book)) if book.exists() else []
    books = balance(plan.ledger.orders, {id_: life.state for id_, life in lives.items()}, effects)
    history = check_history(plan.folder, plan.place.url, plan.seconds_max)
    election = None if course.election is None else course.election.report()
    planned: frozenset[str] = planned_faults(plan.faults, plan.ledger.orders)
    # Unknown when a process failed before the services were asked; that is a problem of its own, and listed already.
    if fired is not None and (missing := sorted(kind for kind in planned if not fired.get(kind))):
        problems.append(f"planned faults that never fired: {', '.join(missing)}")
    if course.kills < plan.kills:
        problems.append(f"only {course.kills} of {plan.kills} kills found work in flight")
    problems += find_election_problems(election)
    if election is not None:
        planned, fired = planned | {LEADER_KILLED}, {**(fired or {}), LEADER_KILLED: election.kills}
    if history is not None:
        problems.append(history)
    if plan.outage is not None and (held := books.states.get("held", 0)):
        problems.append(f"{held} orders are held, which an outage should not cause")
    return Summary(
        orders=plan.orders,
        set_aside=plan.ledger.set_aside,
        counts=counts,
        seconds=seconds,
        processes=plan.processes,
        kills=course.kills,
        kills_planned=plan.kills,
        faults_planned=planned,
        faults_fired=fired or {},
        books=books,
        turns=check_turns(plan.ledger.orders, lives, effects),
        is_history_clean=history is None,
        outage=_outage_report(plan, course),
        election=election,
        problems=tuple(problems),
    )


def _outage_report(plan: Plan, course: Course) -> OutageReport | None:
    if course.outage is None:
        return None
    try:
        return read_outage_report(course.outage, course.calls_while_down, plan.folder / HISTORY)
    except (OSError, MutilatedExport):  # a problem that was told of before
        return None


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
def _ending_on_signals() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a terminal that is closed, unwind the stack as Ctrl-C does: no process of ours is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup has it ignored
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
