"""``arriero task explain``: why a task is where it is, and what would move it."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
import msgspec

from ..attempt import as_datetime
from ..core.explain import Act, Explanation, Reason, explain
from ..core.moves import Move
from ..core.readable import legible_task
from ..core.wording import relative, told
from ..escaping import shell_word
from ..model import AlertRow, Instant, Loaded, StepKind, TaskState, Trace
from ..store.base import StateStore
from ..store.masking import holds_password
from ..task_view import asked_ahead
from .output import cut, one_line, print_json, print_text, time_of
from .payload_record import ShownRecord, print_record, read_record
from .stores import configured, json_option, reading, store_option
from .task import find_task
from .tracebacks import print_trace

ALERTS_PAGE = 1_000
RESULTS_SHOWN_MAX = 10  # the last ones
ACTS_SHOWN_MAX = 5  # the last ones; `arriero history` tells them all
STORE_VARIABLE = "ARRIERO_STORE"
NEEDS_TYPES = ("--arguments", "--result")  # checked against the types of an App


class ShownReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is so."""

    kind: str
    says: str
    step: str = ""
    since: datetime | None = None
    until: datetime | None = None
    idempotency_key: str = ""
    trace: Trace = ()


class ShownResult(msgspec.Struct, frozen=True):
    """The recorded result of a step; ``ordinal``: its number in the task."""

    ordinal: int
    step: str
    result: msgspec.Raw


class ShownAct(msgspec.Struct, frozen=True):
    """What a person did."""

    at: datetime
    verb: str
    by: str
    reason: str
    before: str
    after: str


class ShownMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verb: what it would do and how it is typed, or why it would be refused."""

    verb: str
    does: str
    step: str = ""
    command: str = ""
    refused: str = ""


class ShownExplanation(msgspec.Struct, frozen=True):
    """What ``task explain --json`` prints."""

    no: int
    id: str
    workflow: str
    state: str
    incarnation: int
    now: datetime
    reasons: tuple[ShownReason, ...]
    people: tuple[ShownAct, ...]
    verbs: tuple[ShownMove, ...]
    note: str = ""
    results: tuple[ShownResult, ...] = ()
    output: msgspec.Raw | None = None
    record: ShownRecord = ShownRecord()


@click.command("explain", short_help="Say why a task is where it is, and what would move it.")
@click.argument("task_id", metavar="ID")
@store_option
@json_option
def explain_task(task_id: str, store: str | None, as_json: bool) -> None:
    """Say in plain words why a task is where it is, what it waits for, and which verbs would move it."""
    loaded, explanation, now, record = asyncio.run(_explain(task_id, store))
    typed = Typed(task_id, store)
    if as_json:
        print_json(_shown(loaded, explanation, now, typed, record))
    else:
        _print(loaded, explanation, now, typed, record)


async def _explain(task_id: str, given: str | None) -> tuple[Loaded, Explanation, Instant, ShownRecord]:
    async with reading(given) as store:
        loaded = await find_task(task_id, store)
        task_no = loaded.task.task_no
        rows = [row async for row in store.history(task_no)]
        alert = await _alert_of(task_no, store) if loaded.task.state is TaskState.ERROR else None
        now, processes = await store.known_processes()
        ahead = await asked_ahead(loaded, store)
        explanation = explain(loaded, now, processes, history=rows, alert=alert, ahead=ahead)
        return legible_task(loaded)[0], explanation, now, await read_record(loaded, store, rows)


async def _alert_of(task_no: int, store: StateStore) -> AlertRow | None:
    after = 0
    while page := await store.alerts(open_only=True, after=after, limit=ALERTS_PAGE):
        for alert in page:
            if alert.task_no == task_no:
                return alert
        after = page[-1].no
    return None


class Typed:
    """How a verb is typed, with the store and the App where they have to be named."""

    def __init__(self, task_id: str, store: str | None) -> None:
        self._task_id = task_id
        self._store = store
        self._is_secret = store is not None and holds_password(store)
        self._has_app = bool(configured(store).app)

    def command(self, move: Move) -> str:
        """The command; words in capitals are to be filled in."""
        names = [self._task_id, move.step] if move.step else [self._task_id]
        options = [*move.options, "--reason", "TEXT"]
        if not self._has_app and any(option in NEEDS_TYPES for option in options):
            options += ["--app", "MODULE:APP"]
        written = [*map(shell_word, options), *self._store_words()]
        quoted = [shell_word(name) for name in names]
        words = [*written, "--", *quoted] if any(name.startswith("-") for name in names) else [*quoted, *written]
        return f"arriero task {move.verb} {' '.join(words)}"

    def note(self) -> str:
        """What has to be set before a command is typed; empty for nothing."""
        if not self._is_secret or self._store == os.environ.get(STORE_VARIABLE):
            return ""
        return f"set {STORE_VARIABLE} to the URL that you gave with --store; it is not shown, as a password is in it"

    def _store_words(self) -> list[str]:
        """``--store`` again if it was given; a URL with a password by a variable, which is refused while it is empty."""
        if self._store is None:
            return []
        return ["--store", f'"${STORE_VARIABLE}"' if self._is_secret else shell_word(self._store)]


def _shown(
    loaded: Loaded, explanation: Explanation, now: Instant, typed: Typed, record: ShownRecord
) -> ShownExplanation:
    task = loaded.task
    return ShownExplanation(
        no=task.task_no,
        id=task.task_id,
        workflow=task.workflow,
        state=str(task.state),
        incarnation=task.incarnation,
        now=as_datetime(now),
        reasons=tuple(map(_shown_reason, explanation.reasons)),
        people=tuple(map(_shown_act, explanation.acts)),
        verbs=tuple(_shown_move(move, typed) for move in explanation.moves),
        note=typed.note(),
        results=tuple(_results(loaded)),
        output=None if task.output is None else msgspec.Raw(task.output.encode()),
        record=record,
    )


def _results(loaded: Loaded) -> Iterator[ShownResult]:
    for step in loaded.life:
        if step.kind is StepKind.STEP and step.result is not None and step.result != "null":
            yield ShownResult(step.ordinal, step.label, msgspec.Raw(step.result.encode()))


def _shown_reason(reason: Reason) -> ShownReason:
    since, until = time_of(reason.since), time_of(reason.until)
    return ShownReason(reason.kind, reason.says, reason.step, since, until, reason.idempotency_key, reason.trace)


def _shown_act(act: Act) -> ShownAct:
    return ShownAct(as_datetime(act.at), act.verb, act.by, act.reason, act.before, act.after)


def _shown_move(move: Move, typed: Typed) -> ShownMove:
    command = "" if move.refused else typed.command(move)
    return ShownMove(str(move.verb), move.does, move.step, command, move.refused)


def _print(loaded: Loaded, explanation: Explanation, now: Instant, typed: Typed, record: ShownRecord) -> None:
    task = loaded.task
    paused = ", paused" if task.paused_at is not None else ""
    again = f", incarnation {task.incarnation}" if task.incarnation > 1 else ""
    submitted = f"submitted {relative(task.submitted_at, now)}"
    _say(
        f"task {task.task_id} (number {task.task_no}) of workflow {task.workflow}: {task.state}{paused}{again}, {submitted}"
    )
    click.echo()
    for reason in explanation.reasons:
        _say(f"- {reason.says}")
        if len(reason.trace) > 1 or sum(len(one.frames) for one in reason.trace) > 1:  # else it was just said
            print_trace(reason.trace, indent=4)
        if reason.idempotency_key and reason.idempotency_key not in reason.says:
            click.echo(f"    idempotency key of {one_line(reason.step)}: {one_line(reason.idempotency_key)}")
    _print_results(loaded)
    _print_acts(explanation.acts, now)
    print_record(record)
    allowed = [move for move in explanation.moves if not move.refused]
    click.echo("\nwhat you can do:" if allowed else "\nno verb would move it")
    if allowed and (note := typed.note()):
        _say(f"  ({note})")
    for move in allowed:
        _say(f"- {move.verb}: {move.does}")
        click.echo(f"    {one_line(typed.command(move))}")
    for move in explanation.moves:
        if move.refused:
            _say(f"- {move.verb} would be refused: {move.refused}")


def _print_results(loaded: Loaded) -> None:
    results = list(_results(loaded))
    if not results and loaded.task.output is None:
        return
    click.echo("\nwhat is recorded:")
    for one in results[-RESULTS_SHOWN_MAX:]:
        _say(f"- result of {one.step}: {cut(bytes(one.result).decode())}")
    if len(results) > RESULTS_SHOWN_MAX:
        _say(f"  and {len(results) - RESULTS_SHOWN_MAX:,} results before; `arriero task show` tells them all")
    if loaded.task.output is not None:
        _say(f"- output: {cut(loaded.task.output)}")


def _print_acts(acts: Sequence[Act], now: Instant) -> None:
    if not acts:
        return
    click.echo("\nwhat people did:")
    for act in acts[-ACTS_SHOWN_MAX:]:
        changed = f", and it went from {act.before} to {act.after}" if act.before != act.after else ""
        _say(f'- {told(act.at, now)} {act.by} asked for {act.verb}{changed}: "{act.reason}"')
    if len(acts) > ACTS_SHOWN_MAX:
        click.echo(f"  and {len(acts) - ACTS_SHOWN_MAX:,} times before; `arriero history` tells them all")


def _say(text: str) -> None:
    print_text(text, first="  " if text.startswith("  ") else "", hanging=2)
