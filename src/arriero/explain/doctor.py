"""Diagnoses a store, its machine and the processes on it: facts in, findings with their remedies out.

``care``: an operator should act. ``information``: good to know, nothing has to be done. ``fine``: looked at, and well.
"""

import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec

from ..core.alert_groups import AlertGroup
from ..errors import UnreadableRow
from ..inspection.facts import Backlog, FileFacts
from ..model import TASK_OPEN, AlertRow, Instant, TaskState, seconds_between
from ..model.processes import SET_PUBLIC_URL, ProcessRow
from ..store.contract import Survey
from ..text.format import format_bytes, format_count, format_count_with_verb, format_instant_and_age
from .liveness import (
    LiveProcesses,
    describe_process,
    format_by_app,
    format_code_name,
    format_has_code,
    format_of_app,
    format_process,
    suggest_assignment,
)
from .requests import NOBODY_ASKS, START_PROGRAM, describe_lack_of_url, describe_wait_for_program, is_pulled

WAIT_SECONDS_MAX = 60.0  # what is due waits far less while processes with its code have room
UNTOLD_SECONDS_MAX = 60.0  # an alert is reported within seconds
UNREAD_SECONDS_MAX = 86_400.0  # a day; the one who reads a reply queue was here since
DISK_BYTES_MIN = 10**9  # a gigabyte: below it a busy store and its log may fill the disk within the hour
DISK_SHARE_MIN = 0.1  # of the disk, unless there is
DISK_BYTES_PLENTY = 10**10  # ten gigabytes, which is room enough on a disk of any size
LOG_BYTES_MAX = 256 * 10**6  # it is moved into the file every some ten megabytes, so something keeps it from that
NAMES_SHOWN_MAX = 20

SQLITE_FIXED = (3, 51, 3)
NETWORK_FILE_SYSTEMS = frozenset(
    [
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
    ]
)
MEMORY_FILE_SYSTEMS = frozenset(("ramfs", "tmpfs"))
ROLES = {
    "scheduler": "tasks are not taken up",
    "agents": "steps are not attempted",
    "supervisor": "nothing that expired is decided about, and no alert is delivered",
}
START = "start one: arriero run MODULE:APP"

Level = Literal["care", "information", "fine"]


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at. ``about`` is for programs; ``remedy``: what to do, empty when there is nothing."""

    level: Level
    about: str
    says: str
    remedy: str = ""


class Versions(msgspec.Struct, frozen=True):
    """Versions of what runs here."""

    arriero: str
    python: str
    sqlite: tuple[int, int, int]


class StoppedConvoys(msgspec.Struct, frozen=True, kw_only=True):
    """Convoys that are blocked in one way.

    Args:
        state: ``stopped``, ``parked``, or ``gap`` for those past the limit of theirs.
        count: how many; with ``more`` only those that were looked at.
        waiting: tasks that wait in them.
        key: of the first one; ``since`` when, and what it waits for, as it continues after "it waits for ".
    """

    state: Literal["stopped", "parked", "gap"]
    count: int
    more: bool = False
    waiting: int
    key: str
    since: Instant | None
    waits_for: str


def needs_care(findings: Sequence[Finding]) -> bool:
    """Returns True if an operator should act."""
    return any(finding.level == "care" for finding in findings)


def sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings: care, information, fine; the order within a level stays."""
    return sorted(findings, key=lambda finding: ("care", "information", "fine").index(finding.level))


# --- the machine and the file
def diagnose_file(file: FileFacts, versions: Versions) -> list[Finding]:
    """Diagnose the machine and the file, without looking at any task."""
    of_file = [
        *_check_schema(file),
        *_check_journal(file),
        _check_place(file),
        *_check_sizes(file),
        _check_file_modes(file),
    ]
    return [_check_versions(versions), *_check_sqlite(versions), *of_file]


def _check_versions(versions: Versions) -> Finding:
    sqlite = ".".join(map(str, versions.sqlite))
    return Finding("fine", "versions", f"arriero {versions.arriero}, Python {versions.python}, SQLite {sqlite}")


def _check_sqlite(versions: Versions) -> list[Finding]:
    if versions.sqlite >= SQLITE_FIXED:
        return []
    says = (
        f"SQLite {'.'.join(map(str, versions.sqlite))} has a known defect, fixed in"
        f" {'.'.join(map(str, SQLITE_FIXED))}: a checkpoint that overlaps a commit which restarts the log can damage the"
        " file; arriero works around it, for it makes checkpoints only while nobody can commit"
    )
    remedy = "other programs must not write this file with automatic checkpoints on; open it with arriero.connect there"
    return [Finding("information", "sqlite", says, remedy)]


def _check_schema(file: FileFacts) -> list[Finding]:
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


def _check_journal(file: FileFacts) -> list[Finding]:
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


def _check_place(file: FileFacts) -> Finding:
    kind, where = file.file_system, f"{file.file_system} mounted at {file.mount}"
    if not kind:
        return Finding("information", "file_system", "this system does not say on which file system the file lies")
    if kind in NETWORK_FILE_SYSTEMS:
        says = f"the file lies on a network file system ({where}): locks and the log's shared memory fail there"
        return Finding("care", "file_system", says, "stop all processes and move the file and its -wal to a local disk")
    if kind in MEMORY_FILE_SYSTEMS:
        says = f"the file lies in memory ({where}): it is lost at the next restart of the machine"
        return Finding("care", "file_system", says, "stop all processes and move the file and its -wal to a disk")
    return Finding("fine", "file_system", f"the file lies on {where}")


def _check_file_modes(file: FileFacts) -> Finding:
    if not file.readable:
        return Finding("fine", "modes", "only their owner may read the store's files")
    says = f"others than their owner may read {', '.join(file.readable)}: payloads of tasks stand in them"
    remedy = f"if nobody else needs them: `chmod go-rwx {' '.join(map(shlex.quote, file.readable))}`"
    return Finding("information", "modes", says, remedy)


def _check_sizes(file: FileFacts) -> list[Finding]:
    free = f"{format_bytes(file.disk_free)} of {format_bytes(file.disk_total)} are free on its disk"
    share = file.disk_free / max(file.disk_total, 1)
    is_short = file.disk_free < DISK_BYTES_MIN or (share < DISK_SHARE_MIN and file.disk_free < DISK_BYTES_PLENTY)
    remedy = "free some: when none is left nothing new is accepted, and attempts end in doubt; see `arriero purge`"
    found = [Finding("care", "disk", f"only {free}", remedy) if is_short else Finding("fine", "disk", free)]
    sizes = f"the file has {format_bytes(file.file_bytes)}, its log (-wal) {format_bytes(file.log_bytes)}"
    if file.log_readers:
        pids = ",".join(reader.split()[0] for reader in file.log_readers)
        says = (
            f"{sizes}: process {', '.join(file.log_readers)} keeps a read transaction open, so the log cannot be emptied and grows"
            " with each commit"
        )
        remedy = f"end that transaction, or the process; to see what it is: ps -fp {pids}"
        found.append(Finding("care", "size", says, remedy))
    elif file.log_bytes > LOG_BYTES_MAX:
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
        remedy = f"{UnreadableRow.remedy}; no statement may find such a row, so what is in it can wait indefinitely"
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
    survey: Survey,
    *,
    oldest_alert: AlertRow | None = None,
    causes: Sequence[AlertGroup] = (),
    unreadable: Sequence[AlertRow] = (),
    untold_alert: AlertRow | None = None,
    not_undoable: Sequence[tuple[str, str]] | None = None,
    standstills: Sequence[StoppedConvoys] = (),
) -> list[Finding]:
    """Diagnose tasks, steps, queues and processes.

    Args:
        oldest_alert: the open one opened first, of a held task.
        causes: what holds the tasks, the cause of most tasks first.
        unreadable: open ones of tasks with a row that cannot be read.
        untold_alert: an open one that some sink does not know of.
        not_undoable: (agent, step) of an App without compensation and not effect_free; None: those recorded.
        standstills: what is blocked among convoys, once for each state.
    """
    running = LiveProcesses(survey.processes, survey.now)
    return [
        *_check_processes(survey, running),
        *_check_code(survey, running),
        *_check_waiting_tasks(survey),
        *_check_errors(survey, oldest_alert, causes),
        *_check_unreadable_tasks(unreadable, survey.now),
        *(_describe_stopped_convoys(still, survey.now) for still in standstills),
        *_check_alerts(survey, untold_alert),
        *_check_probation(survey),
        *_check_paused_tasks(survey),
        *_check_reply_queues(survey),
        *_check_undo(survey, not_undoable),
        _count_rows(survey),
    ]


def _check_processes(survey: Survey, running: LiveProcesses) -> list[Finding]:
    under_way, alive = sum(survey.states.get(state, 0) for state in TASK_OPEN), running.alive
    found = [_describe_lapsed_process(process, survey.now) for process in survey.processes if process not in alive][
        :NAMES_SHOWN_MAX
    ]
    if not alive:
        if under_way or survey.untold[0]:
            says = f"no process is alive on this store, and {format_count_with_verb(under_way, 'task')} open"
            return [Finding("care", "processes", says, START), *found]
        return [Finding("information", "processes", "no process is alive on this store; nothing waits for one"), *found]
    for role, lack in ROLES.items():
        if not running.list_with_role(role):
            says = f"no process alive plays the role {role}: {lack}"
            found.append(Finding("care", "roles", says, f"start one: arriero run MODULE:APP --roles {role}"))
    names = "; ".join(map(describe_process, alive[:NAMES_SHOWN_MAX]))
    found.append(Finding("fine", "processes", f"{format_count_with_verb(len(alive), 'process')} alive: {names}"))
    return found


def _describe_lapsed_process(process: ProcessRow, now: Instant) -> Finding:
    says = f"{format_process(process)} has not renewed its lease, which ran out at {format_instant_and_age(process.lease_until, now)}"
    remedy = "it hangs or died; the next process that is alive declares it lost and frees what it held"
    return Finding("information", "processes", says, remedy)


def _check_code(survey: Survey, running: LiveProcesses) -> list[Finding]:
    found: list[Finding] = []
    if running.list_with_role("scheduler"):
        for app, workflow in survey.workflows[:NAMES_SHOWN_MAX]:
            if not running.list_with_workflow(workflow, app):
                told = running.choose_app_to_name(app)
                says = f"tasks of {format_code_name(workflow)}{format_of_app(told)} are due, and no process alive {format_has_code(told)}"
                remedy = f"run the App that has {format_code_name(workflow)}, or fix its name"
                others = running.list_other_apps_with(workflow, app)
                found.append(Finding("care", "code", says, suggest_assignment(app, others) or remedy))
    is_hosting = bool(running.list_with_role("agents"))
    for app, agent, step in survey.steps[:NAMES_SHOWN_MAX]:
        if told := describe_lack_of_url(running, agent, step, app):
            says = f"step {step} of Agent {agent} is asked for: {told}"
            found.append(Finding("care", "code", says, SET_PUBLIC_URL))
        elif is_pulled(running, agent):
            told = describe_wait_for_program(running, agent, step, app)
            if not running.list_hosts_of_step(agent, step, app) or NOBODY_ASKS in told:
                found.append(
                    Finding("care", "code", f"step {step} of Agent {agent} is asked for: {told}", START_PROGRAM)
                )
        elif is_hosting and not running.list_hosts_of_step(agent, step, app):
            told = running.choose_app_to_name(app)
            asked = f"step {step} of Agent {agent} is asked for{format_by_app(told)}"
            says = f"{asked}, and no process alive{format_of_app(told)} hosts it"
            remedy = f"run an App that has it, and name the Agent where --agents is given: --agents {agent}"
            remedy = suggest_assignment(app, running.list_other_apps_hosting(agent, step, app)) or remedy
            found.append(Finding("care", "code", says, remedy))
    return found


def _check_waiting_tasks(survey: Survey) -> list[Finding]:
    count, oldest = survey.waiting
    if oldest is None or not count:
        return [Finding("fine", "waiting", "no task is free and due")]
    is_long = seconds_between(oldest, survey.now) > WAIT_SECONDS_MAX
    says = f"{format_count_with_verb(count, 'task')} free and due, the oldest since {format_instant_and_age(oldest, survey.now)}"
    if not is_long:
        return [Finding("fine", "waiting", says)]
    remedy = "see why: arriero task explain ID, of `arriero task list --state pending` and --state processing"
    return [Finding("care", "waiting", says, remedy)]


def _check_errors(survey: Survey, oldest: AlertRow | None, causes: Sequence[AlertGroup]) -> list[Finding]:
    count = survey.states.get(TaskState.HELD, 0)
    if not count:
        return [Finding("fine", "held", "no task is held")]
    says = f"{format_count_with_verb(count, 'task')} held"
    if oldest is not None:
        since = format_instant_and_age(oldest.opened_at, survey.now)
        says += f", waiting for an operator; the first is {oldest.task_id} since {since}: {oldest.reason}"
    found = [Finding("care", "held", says, "arriero task list --state held, then arriero task explain ID")]
    if all(group.count == 1 for group in causes) and len(causes) == count:
        return found  # there is nothing to put together
    found += [_describe_cause(group, survey.now) for group in causes[:NAMES_SHOWN_MAX]]
    if len(causes) > NAMES_SHOWN_MAX:
        found.append(
            Finding(
                "information",
                "held",
                f"tasks are held for {format_count(len(causes) - NAMES_SHOWN_MAX, 'more cause')}",
            )
        )
    return found


def _describe_cause(group: AlertGroup, now: Instant) -> Finding:
    """Describe what holds some tasks, and the one command for all of them."""
    at_step = f", step {group.step}" if group.step else ""
    code = f" [{group.code}]" if group.code else ""
    first, last = format_instant_and_age(group.first_at, now), format_instant_and_age(group.last_at, now)
    when = f"since {first}" if group.count == 1 else f"the first since {first}, the last since {last}"
    says = (
        f"{format_count(group.count, 'task')} of {group.workflow} held by one cause: {group.cause}{code}{at_step}; {when};"
        f" {group.first_task}: {group.reason}"
    )
    remedy = f"arriero task explain {shlex.quote(group.first_task)}; after the fix, for all of them: arriero task resubmit {group.select}"
    return Finding("information", "held", says, remedy)


def _check_unreadable_tasks(alerts: Sequence[AlertRow], now: Instant) -> list[Finding]:
    found = [_describe_unreadable_task(alert, now) for alert in alerts[:NAMES_SHOWN_MAX]]
    if len(alerts) > NAMES_SHOWN_MAX:
        says = f"{format_count(len(alerts) - NAMES_SHOWN_MAX, 'more task')} cannot be read"
        found.append(Finding("care", "unreadable", says, "correct those that are named here, and look again"))
    return found


def _describe_unreadable_task(alert: AlertRow, now: Instant) -> Finding:
    says = f"task {alert.task_id} is set apart since {format_instant_and_age(alert.opened_at, now)}: {alert.reason}"
    typed = f"{'-- ' if alert.task_id.startswith('-') else ''}{shlex.quote(alert.task_id)}"
    return Finding("care", "unreadable", says, f"arriero task show {typed} shows what can be read")


_STANDS_STILL = {
    "stopped": ("on a held task", "fix that task, or set it aside with `arriero convoy skip KEY`"),
    "parked": ("until an operator releases it", "`arriero convoy release KEY`"),
    "gap": ("for a number that has not come in time", "submit what is missing, or `arriero convoy skip KEY`"),
}


def _describe_stopped_convoys(still: StoppedConvoys, now: Instant) -> Finding:
    why, remedy = _STANDS_STILL[still.state]
    verb = "stands" if still.count == 1 and not still.more else "stand"
    since = "" if still.since is None else f" since {format_instant_and_age(still.since, now)}"
    says = (
        f"{format_count(still.count, 'convoy')}{' or more' * still.more} {verb} still {why}, with"
        f" {format_count(still.waiting, 'task')} waiting; the first is {still.key!r}{since}: it waits for"
        f" {still.waits_for}"
    )
    is_wanted = still.state == "parked" and not still.waiting  # by the one who parked it, as far as the store shows
    level: Level = "information" if is_wanted else "care"
    return Finding(level, "convoys", says, f"arriero convoy list --state {still.state}; {remedy}")


def _check_alerts(survey: Survey, untold: AlertRow | None) -> list[Finding]:
    count, oldest = survey.untold
    if oldest is None or not count:
        return [Finding("fine", "alerts", "all alerts are delivered")]
    says = f"{format_count_with_verb(count, 'alert')} not delivered to all, the oldest since {format_instant_and_age(oldest, survey.now)}"
    if seconds_between(oldest, survey.now) <= UNTOLD_SECONDS_MAX:
        return [Finding("fine", "alerts", says)]
    if untold is not None and untold.error:
        says += f"; delivery fails: {untold.error}"
    remedy = "see that a process with the role supervisor is alive, and its settings [alerts] in `arriero config`"
    return [Finding("care", "alerts", says, remedy)]


def _check_probation(survey: Survey) -> list[Finding]:
    if not survey.probation:
        return [Finding("fine", "probation", "no task is on probation")]
    says = (
        f"{format_count(survey.probation, 'task')} lost two processes or more in a row: those that are open are on probation"
        " and are held at the third loss"
    )
    remedy = "see in the logs of the processes why they died or froze, before more of them do"
    return [Finding("care", "probation", says, remedy)]


def _check_paused_tasks(survey: Survey) -> list[Finding]:
    if not survey.paused:
        return []
    says = f"{format_count_with_verb(survey.paused, 'task')} paused by operators"
    return [Finding("information", "paused", says, "arriero task list --paused; arriero task resume ID --reason TEXT")]


def _check_reply_queues(survey: Survey) -> list[Finding]:
    found: list[Finding] = []
    for queue in survey.queues[:NAMES_SHOWN_MAX]:
        is_old = seconds_between(queue.oldest_at, survey.now) > UNREAD_SECONDS_MAX
        says = (
            f"reply queue {queue.queue} holds {queue.count:,} unread, the oldest since"
            f" {format_instant_and_age(queue.oldest_at, survey.now)}"
        )
        remedy = "see that its reader runs (app.replies); after replies.keep_seconds they are dropped for a gap mark"
        found.append(Finding("care", "replies", says, remedy) if is_old else Finding("fine", "replies", says))
    if len(survey.queues) > NAMES_SHOWN_MAX:
        says = f"{len(survey.queues) - NAMES_SHOWN_MAX:,} more reply queues hold unread statuses"
        found.append(Finding("information", "replies", says))
    return found


def diagnose_outbox(backlog: Backlog) -> list[Finding]:
    """Diagnose status messages that nobody acknowledged, by the oldest of them."""
    oldest = backlog.oldest_status_at
    if oldest is None or seconds_between(oldest, backlog.now) <= UNREAD_SECONDS_MAX:
        return []
    says = (
        f"{format_count_with_verb(backlog.statuses, 'status message')} unread, the oldest since"
        f" {format_instant_and_age(oldest, backlog.now)}"
    )
    remedy = "`arriero doctor` names the reply queues; see that their readers run (app.replies)"
    return [Finding("care", "replies", says, remedy)]


def _check_undo(survey: Survey, of_app: Sequence[tuple[str, str]] | None) -> list[Finding]:
    steps = survey.not_undoable if of_app is None else of_app
    if not steps:
        return []
    names = ", ".join(f"{step} of Agent {agent}" for agent, step in steps[:NAMES_SHOWN_MAX])
    more = f" and {len(steps) - NAMES_SHOWN_MAX} more" if len(steps) > NAMES_SHOWN_MAX else ""
    where = "tasks that have not ended well have steps" if of_app is None else "the App has steps"
    says = f"{where} without compensation that are not effect_free: {names}{more}"
    remedy = "when a task is undone while one of them may have happened, it is held: declare what is missing"
    return [Finding("information", "not_undoable", says, remedy)]


def _count_rows(survey: Survey) -> Finding:
    states = ", ".join(f"{count:,} {state}" for state, count in survey.states.items() if count)
    rows = ", ".join(f"{count:,} {name}" for name, count in survey.rows.items())
    return Finding("fine", "rows", f"rows: {rows}; tasks by state: {states or 'none'}")
