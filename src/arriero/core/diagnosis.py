"""What is wrong with a store, a machine and the processes on it, and what to do about it. Facts in, findings out.

``care``: somebody should act. ``information``: good to know, nothing has to be done. ``fine``: looked at, and well.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from ..errors import UnreadableRow
from ..model import TASK_OPEN, AlertRow, Instant, ProcessRow, TaskState, seconds_between
from . import wording
from .alive import Running, by_app, code_named, has_code, of_app, process_named, runs, told_of_others

WAIT_SECONDS_MAX = 60.0  # what is due waits far less while processes with its code have room
UNTOLD_SECONDS_MAX = 60.0  # an alert is told within seconds
UNREAD_SECONDS_MAX = 86_400.0  # a day; whoever reads a reply queue was here since
DISK_BYTES_MIN = 10**9  # a gigabyte: below it a busy store and its log may fill the disk within the hour
DISK_SHARE_MIN = 0.1  # of the disk, unless there is
DISK_BYTES_PLENTY = 10**10  # ten gigabytes, which is room enough on a disk of any size
LOG_BYTES_MAX = 256 * 10**6  # it is moved into the file every some ten megabytes, so something keeps it from that
NAMES_TOLD_MAX = 20

SQLITE_MENDED = (3, 51, 3)
NETWORK_FILE_SYSTEMS = frozenset(
    (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
    )
)
MEMORY_FILE_SYSTEMS = frozenset(("ramfs", "tmpfs"))
ROLES = {
    "scheduler": "tasks are not taken up",
    "agents": "steps are not attempted",
    "supervisor": "nothing that expired is decided about, and no alert is told",
}
START = "start one: arriero run MODULE:APP"

Level = Literal["care", "information", "fine"]


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at. ``about`` is for programs; ``remedy``: what to do, empty when there is nothing."""

    level: Level
    about: str
    says: str
    remedy: str = ""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of a store's file without changing it.

    Args:
        schema, schema_known: numbers of the last migration: in the file, and of this release.
        synchronous: as arriero's own connections have it; empty when it was not asked.
        file_system: its kind, empty when the system does not say; ``mount``: where it is mounted.
        was_checked: whether the file was read through and found whole; a large one is not.
        damaged: columns of rows, by name, that hold what this release cannot read; looked for in what was checked.
        readable: which of the store's files users besides its owner may read.
    """

    path: str
    schema: int
    schema_known: int
    journal_mode: str
    synchronous: str = ""
    file_system: str
    mount: str
    disk_free: int
    disk_total: int
    file_bytes: int
    log_bytes: int
    was_checked: bool
    damaged: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


class Versions(msgspec.Struct, frozen=True):
    """Of what runs here."""

    arriero: str
    python: str
    sqlite: tuple[int, int, int]


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """Convoys that stand still in one way.

    Args:
        state: ``stopped``, ``parked``, or ``gap`` for those past the limit of theirs.
        count: how many; with ``more`` only those that were looked at.
        waiting: tasks that wait in them.
        key: of the first one; ``since`` when, and what it waits for, as it goes on after "it waits for ".
    """

    state: Literal["stopped", "parked", "gap"]
    count: int
    more: bool = False
    waiting: int
    key: str
    since: Instant | None
    waits_for: str


class QueueSurveyed(Protocol):
    """What is needed of ``store.base.QueueSurvey``."""

    @property
    def queue(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def oldest_at(self) -> Instant: ...


class Surveyed(Protocol):
    """What is needed of ``store.base.Survey``, which tells what each field means."""

    @property
    def now(self) -> Instant: ...
    @property
    def states(self) -> Mapping[TaskState, int]: ...
    @property
    def paused(self) -> int: ...
    @property
    def probation(self) -> int: ...
    @property
    def waiting(self) -> tuple[int, Instant | None]: ...
    @property
    def workflows(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def steps(self) -> tuple[tuple[str, str, str], ...]: ...
    @property
    def not_undoable(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def processes(self) -> tuple[ProcessRow, ...]: ...
    @property
    def queues(self) -> Sequence[QueueSurveyed]: ...
    @property
    def untold(self) -> tuple[int, Instant | None]: ...
    @property
    def rows(self) -> Mapping[str, int]: ...


def needs_care(findings: Sequence[Finding]) -> bool:
    """Whether somebody should act."""
    return any(finding.level == "care" for finding in findings)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """What needs care first, then information, then what is fine; each group as it was found."""
    return sorted(findings, key=lambda finding: ("care", "information", "fine").index(finding.level))


# --- the machine and the file
def diagnose_file(file: FileFacts, versions: Versions) -> list[Finding]:
    """What the machine and the file show without any task being looked at."""
    of_file = [*_schema(file), *_journal(file), _place(file), *_sizes(file), _modes(file)]
    return [_versions(versions), *_sqlite(versions), *of_file]


def _versions(versions: Versions) -> Finding:
    sqlite = ".".join(map(str, versions.sqlite))
    return Finding("fine", "versions", f"arriero {versions.arriero}, Python {versions.python}, SQLite {sqlite}")


def _sqlite(versions: Versions) -> list[Finding]:
    if versions.sqlite >= SQLITE_MENDED:
        return []
    says = (
        f"SQLite {'.'.join(map(str, versions.sqlite))} has a known defect, mended in"
        f" {'.'.join(map(str, SQLITE_MENDED))}: a checkpoint that overlaps a commit which restarts the log can damage the"
        " file; arriero works around it, for it makes checkpoints only while nobody can commit"
    )
    remedy = "other programs must not write this file with automatic checkpoints on; open it with arriero.connect there"
    return [Finding("information", "sqlite", says, remedy)]


def _schema(file: FileFacts) -> list[Finding]:
    if file.schema == file.schema_known:
        return []
    if file.schema > file.schema_known:
        says = (
            f"the schema is number {file.schema}, this release of arriero knows {file.schema_known} and works with it"
        )
        return [Finding("information", "schema", says, "replace what still runs this release by the newer one")]
    says = f"the schema is number {file.schema}, this release of arriero works with number {file.schema_known}"
    remedy = (
        "stop what runs an older release on it, make a backup, and let any other command of this release open it: that"
        " brings the schema up to date; tasks and processes were not looked at before that"
    )
    return [Finding("care", "schema", says, remedy)]


def _journal(file: FileFacts) -> list[Finding]:
    if file.journal_mode != "wal":
        says = f"journal_mode is {file.journal_mode} instead of wal: another program changed it"
        return [
            Finding("care", "journal", says, "leave it alone there; arriero sets it again each time it opens the file")
        ]
    if file.synchronous in ("off", "normal"):
        says = f"synchronous is {file.synchronous}: what was accepted may be lost in a power cut"
        return [Finding("care", "journal", says, "this is a bug of arriero: report it")]
    synchronous = f", synchronous {file.synchronous}: what was accepted is on the disk" if file.synchronous else ""
    return [Finding("fine", "journal", f"journal_mode wal{synchronous}")]


def _place(file: FileFacts) -> Finding:
    kind, where = file.file_system, f"{file.file_system} mounted at {file.mount}"
    if not kind:
        return Finding("information", "file_system", "this system does not tell on which file system the file lies")
    if kind in NETWORK_FILE_SYSTEMS:
        says = f"the file lies on a network file system ({where}): locks and the log's shared memory fail there"
        return Finding("care", "file_system", says, "stop all processes and move the file and its -wal to a local disk")
    if kind in MEMORY_FILE_SYSTEMS:
        says = f"the file lies in memory ({where}): it is gone after the next restart of the machine"
        return Finding("care", "file_system", says, "stop all processes and move the file and its -wal to a disk")
    return Finding("fine", "file_system", f"the file lies on {where}")


def _modes(file: FileFacts) -> Finding:
    if not file.readable:
        return Finding("fine", "modes", "only their owner may read the store's files")
    says = f"others than their owner may read {', '.join(file.readable)}: payloads of tasks stand in them"
    remedy = f"if nobody else needs them: chmod go-rwx {' '.join(map(shlex.quote, file.readable))}"
    return Finding("information", "modes", says, remedy)


def _sizes(file: FileFacts) -> list[Finding]:
    free = f"{wording.size(file.disk_free)} of {wording.size(file.disk_total)} are free on its disk"
    share = file.disk_free / max(file.disk_total, 1)
    is_short = file.disk_free < DISK_BYTES_MIN or (share < DISK_SHARE_MIN and file.disk_free < DISK_BYTES_PLENTY)
    remedy = "free some: when none is left nothing new is accepted, and attempts end in doubt; see `arriero purge`"
    found = [Finding("care", "disk", f"only {free}", remedy) if is_short else Finding("fine", "disk", free)]
    sizes = f"the file has {wording.size(file.file_bytes)}, its log (-wal) {wording.size(file.log_bytes)}"
    if file.log_bytes > LOG_BYTES_MAX:
        remedy = (
            "look for a program that keeps a transaction open on the file, or for a backup of it that never ends;"
            " without any, one process that runs an App brings the log back to size"
        )
        found.append(
            Finding("care", "size", f"{sizes}: something keeps the log from being moved into the file", remedy)
        )
    else:
        found.append(Finding("fine", "size", sizes))
    if file.damaged:
        remedy = f"{UnreadableRow.remedy}; no statement may find such a row, so what is in it can wait for ever"
        says = f"the file holds what this release cannot read: {', '.join(file.damaged)}"
        found.append(Finding("care", "damage", says, remedy))
    elif file.was_checked:
        found.append(Finding("fine", "damage", "the file was read through and is whole"))
    else:
        says = "the file is too large to be read through here; nobody looked for damage"
        remedy = "on a copy of it: sqlite3 COPY 'PRAGMA integrity_check'"
        found.append(Finding("information", "damage", says, remedy))
    return found


# --- tasks and processes
def diagnose_store(
    survey: Surveyed,
    *,
    oldest_alert: AlertRow | None = None,
    unreadable: Sequence[AlertRow] = (),
    untold_alert: AlertRow | None = None,
    not_undoable: Sequence[tuple[str, str]] | None = None,
    standstills: Sequence[Standstill] = (),
) -> list[Finding]:
    """What tasks, steps, queues and processes show.

    Args:
        oldest_alert: the open one opened first, of a task in error.
        unreadable: open ones of tasks with a row that cannot be read.
        untold_alert: an open one that some sink does not know of.
        not_undoable: (agent, step) of an App without compensation and not effect_free; None: those recorded.
        standstills: what stands still among convoys, once for each state.
    """
    running = Running(survey.processes, survey.now)
    return [
        *_alive(survey, running),
        *_without_code(survey, running),
        *_waiting(survey),
        *_errors(survey, oldest_alert),
        *_unreadable(unreadable, survey.now),
        *(_standstill(still, survey.now) for still in standstills),
        *_untold(survey, untold_alert),
        *_probation(survey),
        *_paused(survey),
        *_queues(survey),
        *_not_undoable(survey, not_undoable),
        _rows(survey),
    ]


def _open_count(survey: Surveyed) -> int:
    return sum(survey.states.get(state, 0) for state in TASK_OPEN)


def _alive(survey: Surveyed, running: Running) -> list[Finding]:
    under_way, alive = _open_count(survey), running.alive
    found = [_lapsed(process, survey.now) for process in survey.processes if process not in alive][:NAMES_TOLD_MAX]
    if not alive:
        if under_way or survey.untold[0]:
            says = f"no process is alive on this store, and {wording.so_many_are(under_way, 'task')} under way"
            return [Finding("care", "processes", says, START), *found]
        return [Finding("information", "processes", "no process is alive on this store; nothing waits for one"), *found]
    for role, lack in ROLES.items():
        if not running.with_role(role):
            says = f"no process alive plays the role {role}: {lack}"
            found.append(Finding("care", "roles", says, f"start one: arriero run MODULE:APP --roles {role}"))
    names = "; ".join(map(runs, alive[:NAMES_TOLD_MAX]))
    found.append(Finding("fine", "processes", f"{wording.so_many_are(len(alive), 'process')} alive: {names}"))
    return found


def _lapsed(process: ProcessRow, now: Instant) -> Finding:
    says = (
        f"{process_named(process)} has not renewed its lease, which ran out at {wording.told(process.lease_until, now)}"
    )
    remedy = "it hangs or died; the next process that is alive declares it lost and frees what it held"
    return Finding("information", "processes", says, remedy)


def _without_code(survey: Surveyed, running: Running) -> list[Finding]:
    found: list[Finding] = []
    if running.with_role("scheduler"):
        for app, workflow in survey.workflows[:NAMES_TOLD_MAX]:
            if not running.running_workflow(workflow, app):
                told = running.told_app(app)
                says = f"tasks of {code_named(workflow)}{of_app(told)} are due, and no process alive {has_code(told)}"
                remedy = f"run the App that has {code_named(workflow)}, or fix its name"
                others = running.other_apps_with(workflow, app)
                found.append(Finding("care", "code", says, told_of_others(app, others) or remedy))
    if running.with_role("agents"):
        for app, agent, step in survey.steps[:NAMES_TOLD_MAX]:
            if not running.hosting_step(agent, step, app):
                told = running.told_app(app)
                asked = f"step {step} of Agent {agent} is asked for{by_app(told)}"
                says = f"{asked}, and no process alive{of_app(told)} hosts it"
                remedy = f"run an App that has it, and name the Agent where --agents is given: --agents {agent}"
                remedy = told_of_others(app, running.other_apps_hosting(agent, step, app)) or remedy
                found.append(Finding("care", "code", says, remedy))
    return found


def _waiting(survey: Surveyed) -> list[Finding]:
    count, oldest = survey.waiting
    if oldest is None or not count:
        return [Finding("fine", "waiting", "no task is free and due")]
    is_long = seconds_between(oldest, survey.now) > WAIT_SECONDS_MAX
    says = f"{wording.so_many_are(count, 'task')} free and due, the oldest since {wording.told(oldest, survey.now)}"
    if not is_long:
        return [Finding("fine", "waiting", says)]
    remedy = "see why: arriero task explain ID, of `arriero task list --state pending` and --state processing"
    return [Finding("care", "waiting", says, remedy)]


def _errors(survey: Surveyed, oldest: AlertRow | None) -> list[Finding]:
    count = survey.states.get(TaskState.ERROR, 0)
    if not count:
        return [Finding("fine", "error", "no task is in error")]
    says = f"{wording.so_many_are(count, 'task')} in error"
    if oldest is not None:
        since = wording.told(oldest.opened_at, survey.now)
        says += f", waiting for a person; the first is {oldest.task_id} since {since}: {oldest.reason}"
    return [Finding("care", "error", says, "arriero task list --state error, then arriero task explain ID")]


def _unreadable(alerts: Sequence[AlertRow], now: Instant) -> list[Finding]:
    found = [_cannot_be_read(alert, now) for alert in alerts[:NAMES_TOLD_MAX]]
    if len(alerts) > NAMES_TOLD_MAX:
        says = f"{len(alerts) - NAMES_TOLD_MAX:,} more tasks cannot be read"
        found.append(Finding("care", "unreadable", says, "correct those that are named here, and look again"))
    return found


def _cannot_be_read(alert: AlertRow, now: Instant) -> Finding:
    says = f"task {alert.task_id} is set apart since {wording.told(alert.opened_at, now)}: {alert.reason}"
    typed = f"{'-- ' if alert.task_id.startswith('-') else ''}{shlex.quote(alert.task_id)}"
    return Finding("care", "unreadable", says, f"arriero task show {typed} shows what can be read")


_STANDS_STILL = {
    "stopped": ("on a task in error", "mend that task, or set it aside with `arriero convoy skip KEY`"),
    "parked": ("until a person releases it", "`arriero convoy release KEY`"),
    "gap": ("for a number that has not come in time", "submit what is missing, or `arriero convoy skip KEY`"),
}


def _standstill(still: Standstill, now: Instant) -> Finding:
    why, remedy = _STANDS_STILL[still.state]
    verb = "stands" if still.count == 1 and not still.more else "stand"
    since = "" if still.since is None else f" since {wording.told(still.since, now)}"
    says = (
        f"{wording.counted(still.count, 'convoy')}{' or more' * still.more} {verb} still {why}, with"
        f" {wording.counted(still.waiting, 'task')} waiting; the first is {still.key!r}{since}: it waits for"
        f" {still.waits_for}"
    )
    is_wanted = still.state == "parked" and not still.waiting  # by whoever parked it, as far as anybody can tell
    level: Level = "information" if is_wanted else "care"
    return Finding(level, "convoys", says, f"arriero convoy list --state {still.state}; {remedy}")


def _untold(survey: Surveyed, untold: AlertRow | None) -> list[Finding]:
    count, oldest = survey.untold
    if oldest is None or not count:
        return [Finding("fine", "alerts", "every alert is told")]
    says = f"{wording.so_many_are(count, 'alert')} not told to all, the oldest since {wording.told(oldest, survey.now)}"
    if seconds_between(oldest, survey.now) <= UNTOLD_SECONDS_MAX:
        return [Finding("fine", "alerts", says)]
    if untold is not None and untold.error:
        says += f"; telling fails: {untold.error}"
    remedy = "see that a process with the role supervisor is alive, and its settings [alerts] in `arriero config`"
    return [Finding("care", "alerts", says, remedy)]


def _probation(survey: Surveyed) -> list[Finding]:
    if not survey.probation:
        return [Finding("fine", "probation", "no task is on probation")]
    says = (
        f"{wording.counted(survey.probation, 'task')} lost two processes or more in a row: those under way are on probation"
        " and are held in error at the third loss"
    )
    remedy = "see in the logs of the processes why they died or froze, before more of them do"
    return [Finding("care", "probation", says, remedy)]


def _paused(survey: Surveyed) -> list[Finding]:
    if not survey.paused:
        return []
    says = f"{wording.so_many_are(survey.paused, 'task')} paused by people"
    return [Finding("information", "paused", says, "arriero task list --paused; arriero task resume ID --reason TEXT")]


def _queues(survey: Surveyed) -> list[Finding]:
    found: list[Finding] = []
    for queue in survey.queues[:NAMES_TOLD_MAX]:
        is_old = seconds_between(queue.oldest_at, survey.now) > UNREAD_SECONDS_MAX
        says = (
            f"reply queue {queue.queue} holds {queue.count:,} unread, the oldest since"
            f" {wording.told(queue.oldest_at, survey.now)}"
        )
        remedy = "see that its reader runs (app.replies); after replies.keep_seconds they are dropped for a gap mark"
        found.append(Finding("care", "replies", says, remedy) if is_old else Finding("fine", "replies", says))
    if len(survey.queues) > NAMES_TOLD_MAX:
        says = f"{len(survey.queues) - NAMES_TOLD_MAX:,} more reply queues hold unread statuses"
        found.append(Finding("information", "replies", says))
    return found


def _not_undoable(survey: Surveyed, of_app: Sequence[tuple[str, str]] | None) -> list[Finding]:
    steps = survey.not_undoable if of_app is None else of_app
    if not steps:
        return []
    names = ", ".join(f"{step} of Agent {agent}" for agent, step in steps[:NAMES_TOLD_MAX])
    more = f" and {len(steps) - NAMES_TOLD_MAX} more" if len(steps) > NAMES_TOLD_MAX else ""
    where = "tasks that have not ended well have" if of_app is None else "the App has"
    says = f"{where} steps without compensation that are not effect_free: {names}{more}"
    remedy = "when a task is undone while one of them may have happened, it is held in error: declare what is missing"
    return [Finding("information", "not_undoable", says, remedy)]


def _rows(survey: Surveyed) -> Finding:
    states = ", ".join(f"{count:,} {state}" for state, count in survey.states.items() if count)
    rows = ", ".join(f"{count:,} {name}" for name, count in survey.rows.items())
    return Finding("fine", "rows", f"rows: {rows}; tasks by state: {states or 'none'}")
