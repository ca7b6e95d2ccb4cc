"""Why a task is where it is, what it waits for since when, and which verb would move it. Rows in, sentences out."""

from collections.abc import Iterable

import msgspec

from ..errors import UnreadableRow
from ..model import (
    STEP_OPEN,
    TASK_FORWARD,
    AlertRow,
    ConvoyVerb,
    HistoryRow,
    Instant,
    Loaded,
    ProcessRow,
    StepFailure,
    StepKind,
    StepRow,
    StepState,
    TaskFailure,
    TaskState,
    Trace,
    Turn,
    Verb,
    seconds_between,
)
from . import convoy_words, wording
from .alive import Running, code_named, of_app, process_named, runs, told_of_others
from .compensation import stuck_in_doubt
from .convoy_words import Ahead
from .fold import Event
from .lease import HELD_FROM, is_on_probation
from .moves import UNDO_PREFIX, Move, moves
from .readable import Fault, legible_task
from .stored_events import events_of
from .supervision import may_have_happened, pivot_of, step_policy, task_policy
from .tracing import is_expected, place_told
from .verbs import to_be_redone

STEPS_TOLD_MAX = 10  # a task may have thousands open; the first ones tell how it stands
SOON_SECONDS = 5.0  # what is due is taken well within it when nothing is wrong

_read_failure = msgspec.json.Decoder(TaskFailure).decode
_read_step_failure = msgspec.json.Decoder(StepFailure).decode


class Reason(msgspec.Struct, frozen=True):
    """One thing that is so. ``kind`` is for programs; ``step`` a label; ``since`` and ``until`` where it has them.

    ``trace``: of one that names a line of code: all lines that the exception passed.
    ``idempotency_key``: what the step's service knows it by, where somebody may have to ask that.
    """

    kind: str
    says: str
    step: str = ""
    since: Instant | None = None
    until: Instant | None = None
    idempotency_key: str = ""
    trace: Trace = ()


class Act(msgspec.Struct, frozen=True):
    """What a person did to the task."""

    at: Instant
    verb: str
    by: str
    reason: str
    before: str
    after: str


class Explanation(msgspec.Struct, frozen=True):
    """Why the task is where it is, the most telling reason first; what people did, and what they could do."""

    reasons: tuple[Reason, ...]
    acts: tuple[Act, ...]
    moves: tuple[Move, ...]


def explain(
    loaded: Loaded,
    now: Instant,
    processes: Iterable[ProcessRow],
    *,
    history: Iterable[HistoryRow] = (),
    alert: AlertRow | None = None,
    ahead: Ahead | None = None,
) -> Explanation:
    """Explain a task as it was read.

    Args:
        loaded: the task and its steps.
        now: the store's clock.
        processes: those not retired, with what they say they run.
        history: of the task, in commit order.
        alert: its open one.
        ahead: who comes before it in its convoy, if its turn has not come.
    Returns: of a task with a row that this release cannot read only that, each column by name, and no verb.
    """
    past = Past(history)
    if faults := legible_task(loaded)[1]:
        return Explanation(tuple(map(_cannot_be_read, faults)), tuple(past.acts), ())
    return Explanation(
        tuple(_Explained(loaded, now, Running(processes, now), past, alert, ahead).reasons()),
        tuple(past.acts),
        tuple(moves(loaded, now)),
    )


def _cannot_be_read(fault: Fault) -> Reason:
    """Of a task that goes on for nobody who cannot read it; no verb is judged on half of it."""
    return Reason("unreadable", f"{fault.says} cannot be read; {UnreadableRow.remedy}")


class Past:
    """What the history adds to the rows: who acted and why, and since when things are under way."""

    def __init__(self, history: Iterable[HistoryRow]) -> None:
        self.acts: list[Act] = []
        self.undo_begun_at: Instant | None = None
        self.dispatched_at: dict[int, Instant] = {}
        for row in history:
            for event in events_of(row):
                self._add(event, row.at)

    def _add(self, event: Event, at: Instant) -> None:
        match event.get("type"):
            case "operator.action":
                words = [str(event.get(name, "")) for name in ("verb", "by", "reason", "before", "after")]
                self.acts.append(Act(at, *words))
            case "undo.begun":
                self.undo_begun_at = at
            case "step.dispatched" | "compensation.dispatched":
                self.dispatched_at[event["step"]] = at

    def last(self, verb: Verb) -> Act | None:
        """The last time that somebody did this."""
        return next((act for act in reversed(self.acts) if act.verb == verb), None)


def attempt_named(step: StepRow) -> str:
    """Which attempt is under way or comes next: ``attempt 2 of 3``, with the round where there are several."""
    supervision = step_policy(step).supervision
    rounds_spent, in_round = divmod(step.failure_count, supervision.attempts)
    text = f"attempt {in_round + 1} of {supervision.attempts}"
    if supervision.rounds > 1:
        text += f" in round {rounds_spent + 1} of {supervision.rounds}"
    return text if step.attempt == step.failure_count + 1 else f"{text} (number {step.attempt} in all)"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _line(trace: Trace, step: str) -> list[Reason]:
    """The line of code that a failure came from, where one is known."""
    told = place_told(trace)
    return [Reason("line", told, step, trace=trace)] if told else []


class _Explained:
    """One task, looked at from all sides."""

    def __init__(
        self,
        loaded: Loaded,
        now: Instant,
        running: Running,
        past: Past,
        alert: AlertRow | None,
        ahead: Ahead | None,
    ) -> None:
        self.task = loaded.task
        self.convoy = loaded.convoy
        self.ahead = ahead
        self.life = loaded.life
        self.now = now
        self.running = running
        self.past = past
        self.alert = alert
        self.failure = None if loaded.task.failure is None else _read_failure(loaded.task.failure)

    def reasons(self) -> list[Reason]:
        match self.task.state:
            case TaskState.ERROR:
                return [*self._error(), *self._key_stands_still(), *self._pivot()]
            case TaskState.PROCESSED:
                return [*self._processed(), *self._pivot()]
            case TaskState.COMPENSATED:
                return self._compensated()
            case _:
                return self._under_way()

    def _at(self, instant: Instant) -> str:
        return wording.told(instant, self.now)

    # --- under way
    def _under_way(self) -> list[Reason]:
        holder = self._holder()
        stopped = [reason for reason in holder if reason.kind != "held"]  # a step tells more than who drives the task
        turn = self._turn()
        found = [*self._paused(), *turn, *self._undo(), *self._limit_passed(), *stopped, *self._open_steps()]
        found += [reason for reason in holder if reason.kind == "held"]
        if not found:
            found.append(Reason("nothing_wakes_it", "it is free, and only news of a step would wake it"))
        told = [*found, *self._nobody_later(found), *self._probation(), *self._limit_ahead(), *self._pivot()]
        return [*told, *self._has_the_turn()]

    def _turn(self) -> list[Reason]:
        """What it waits for in its convoy; nothing once its turn has come."""
        task, convoy = self.task, self.convoy
        if convoy is None or task.turn is not Turn.WAITING:
            return []
        where = convoy_words.place_told(task, convoy.ordering)
        says = f"it waits for {convoy_words.turn_waited_for(task, convoy, self.ahead)}; it has {where}"
        found = [Reason("waits_for_turn", says)]
        if task.due_at is not None and task.due_at > self.now:
            says = f"also when its turn comes it does not start before {self._at(task.due_at)}, as submitted"
            found.append(Reason("waits_for_start", says, until=task.due_at))
        return found

    def _has_the_turn(self) -> list[Reason]:
        task, convoy = self.task, self.convoy
        if convoy is None or task.turn is not Turn.OPEN:
            return []
        where = convoy_words.place_told(task, convoy.ordering)
        says = f"it has the turn in convoy {convoy.key!r}, with {where}: the others of the convoy wait for its end"
        return [Reason("has_the_turn", says)]

    def _key_stands_still(self) -> list[Reason]:
        """What an error means for the convoy of the task."""
        task, convoy = self.task, self.convoy
        if convoy is None or task.turn not in (Turn.OPEN, Turn.WAITING, Turn.SET_ASIDE):
            return []
        name = f"convoy {convoy.key!r}"
        if task.turn is Turn.WAITING:
            says = f"its turn in {name} has not come; the convoy's head policy is followed when it does"
            return [Reason("waits_for_turn", says)]
        if task.turn is Turn.SET_ASIDE:
            says = f"{name} has set it aside and goes on without it; resubmit brings it back, to wait for its turn"
            lost = "; its place is lost then: others that came after it have gone before"
            return [Reason("set_aside", says + lost * convoy_words.would_lose_its_place(task, convoy))]
        says = f"it has the turn in {name}, which stands still until it is mended"
        if convoy.parked_at is not None:
            release = convoy_words.typed(ConvoyVerb.RELEASE, convoy.key)
            says += f"; the convoy is parked besides ({convoy.parked_why}) until {release}"
        says += f"; to go on without it: {convoy_words.typed(ConvoyVerb.SKIP, convoy.key)}"
        return [Reason("convoy_stopped", says)]

    def _paused(self) -> list[Reason]:
        since = self.task.paused_at
        if since is None:
            return []
        act = self.past.last(Verb.PAUSE)
        who = "" if act is None else f' by {act.by}: "{act.reason}"'
        says = f"paused since {self._at(since)}{who}; nothing new begins until it is resumed"
        return [Reason("paused", says, since=since)]

    def _undo(self) -> list[Reason]:
        if self.task.state is not TaskState.COMPENSATING:
            return []
        since = self.past.undo_begun_at
        why = "" if self.failure is None else f": {self.failure.reason}"
        says = f"it is being undone{'' if since is None else f' since {self._at(since)}'}{why}"
        undoing = [step for step in self.life if step.kind is StepKind.COMPENSATION]
        done = [step for step in undoing if step.state is StepState.COMPLETED]
        if undoing:
            says += f"; {len(done)} of {wording.counted(len(undoing), 'compensation')} done"
        planned = [step.label for step in undoing if step.state is StepState.PLANNED]
        if planned:
            says += f"; then to be undone: {_listed(planned[:STEPS_TOLD_MAX])}"
        line = [] if self.failure is None else _line(self.failure.trace, self.failure.step)
        return [Reason("undo", says, since=since), *line]

    def _limit_passed(self) -> list[Reason]:
        limit = self.task.complete_by
        if limit is None or limit > self.now or self.task.state not in TASK_FORWARD:
            return []
        if self.task.paused_at is not None:
            says = f"its own limit passed at {self._at(limit)} and waits while it is paused: extend it before you resume it"
        else:
            says = f"its own limit passed at {self._at(limit)}: the Supervisor ends it{self._no_supervisor()}"
        return [Reason("limit_passed", says, since=limit)]

    def _no_supervisor(self) -> str:
        return "" if self.running.with_role("supervisor") else ", but no process alive runs one"

    def _limit_ahead(self) -> list[Reason]:
        limit = self.task.complete_by
        if limit is None or limit <= self.now or self.task.state not in TASK_FORWARD:
            return []
        undone = task_policy(self.task.policy).supervision.then == "compensate" and pivot_of(self.life) is None
        says = f"its own limit is {self._at(limit)}; then it is {'undone' if undone else 'held in error'}"
        return [Reason("limit", says, until=limit)]

    def _probation(self) -> list[Reason]:
        if not is_on_probation(self.task):
            return []
        says = (
            f"on probation: {self.task.lost_count} processes in a row died or froze with it; a process handles one such"
            f" task at a time, and at loss {HELD_FROM}, or what node.lost_processes_max says, it is held in error"
        )
        return [Reason("probation", says)]

    # --- who drives it
    def _holder(self) -> list[Reason]:
        return self._free() if self.task.locked_by is None else [self._held(self.task.locked_by)]

    def _held(self, process_no: int) -> Reason:
        process = self.running.rows.get(process_no)
        if process is None:
            return Reason(
                "holder_lost", f"held by process {process_no}, which was declared lost; {self._freed_by_others()}"
            )
        name = process_named(process)
        if process.lease_until <= self.now:
            says = f"held by {name}, whose lease ran out at {self._at(process.lease_until)}: it hangs or died; "
            return Reason("holder_lost", says + self._freed_by_others(), since=process.lease_until)
        unseen = self.task.unseen_since
        if unseen is not None and seconds_between(unseen, self.now) >= SOON_SECONDS:
            says = (
                f"held by {name}, which has not looked at its news since {self._at(unseen)}: its code or its event loop is"
                " busy or stuck; after node.progress_seconds the Supervisor frees it" + self._no_supervisor()
            )
            return Reason("holder_busy", says, since=unseen)
        return Reason("held", f"held by {name}, which drives it")

    def _freed_by_others(self) -> str:
        if self.running.alive:
            return "another process frees it within seconds"
        return "no process is alive that could free it: start one (arriero run MODULE:APP)"

    def _free(self) -> list[Reason]:
        due = self.task.not_before
        if due is None or self.task.paused_at is not None:
            return []
        if due > self.now:
            return self._not_due(due)
        return [self._untaken_task(due)]

    def _not_due(self, due: Instant) -> list[Reason]:
        if self.task.started_at is None:
            return [Reason("waits_for_start", f"it waits for its start at {self._at(due)}, as submitted", until=due)]
        if any(step.kind is StepKind.TIMER and step.state in STEP_OPEN for step in self.life):
            return []  # the timer tells it
        return [Reason("not_due", f"it is free, and looked at again at {self._at(due)}", until=due)]

    def _untaken_task(self, due: Instant) -> Reason:
        ready = self._ready()
        since = f"it is free and due since {self._at(due)}"
        if not ready:
            return Reason("nobody_runs_it", f"{since}, but {self._nobody()}", since=due)
        names = _listed(map(process_named, ready[:STEPS_TOLD_MAX]))
        if seconds_between(due, self.now) < SOON_SECONDS:
            return Reason("due", f"{since}; it is about to be taken up by {names}", since=due)
        probation = ", or handles another task on probation" if is_on_probation(self.task) else ""
        says = (
            f"{since}, and not taken up yet by {names}: each holds as many tasks as it may, is busy with tasks of higher"
            f" priority than {self.task.priority}{probation}"
        )
        return Reason("no_room", says, since=due)

    def _ready(self) -> list[ProcessRow]:
        """Processes alive that may take it up; an undo needs none of its workflow's code."""
        if self.task.state is TaskState.COMPENSATING:
            return self.running.scheduling(self.task.app)
        return self.running.running_workflow(self.task.workflow, self.task.app)

    def _nobody(self) -> str:
        if not self.running.alive:
            return self._alive()
        is_undo = self.task.state is TaskState.COMPENSATING
        what = "plays the role scheduler" if is_undo else f"runs {code_named(self.task.workflow)}"
        app = of_app(self.running.told_app(self.task.app))
        return f"no process alive{app} {what}; {self._others_or_alive()}"

    def _others_or_alive(self) -> str:
        """Whoever else has the code, and what to do; else who is alive."""
        others = self.running.other_apps_with(self.task.workflow, self.task.app)
        return told_of_others(self.task.app, others) or self._alive()

    def _nobody_later(self, found: list[Reason]) -> list[Reason]:
        """What waits for something else too, and would then wait for a process."""
        is_told = any(reason.kind in ("nobody_runs_it", "holder_lost") for reason in found)
        if is_told or self._ready():
            return []
        return [Reason("nobody_runs_it", f"nobody would take it up then: {self._nobody()}")]

    def _alive(self) -> str:
        alive = self.running.alive
        if not alive:
            return "no process is alive at all: start one (arriero run MODULE:APP)"
        more = f"; and {len(alive) - STEPS_TOLD_MAX} more" if len(alive) > STEPS_TOLD_MAX else ""
        return f"alive are: {'; '.join(map(runs, alive[:STEPS_TOLD_MAX]))}{more}"

    # --- what is open
    def _open_steps(self) -> list[Reason]:
        open_steps = [step for step in self.life if step.state in STEP_OPEN]
        found = [reason for step in open_steps[:STEPS_TOLD_MAX] for reason in self._open_step_and_line(step)]
        if len(open_steps) > STEPS_TOLD_MAX:
            found.append(Reason("more", f"and {len(open_steps) - STEPS_TOLD_MAX} more steps are open"))
        return found

    def _open_step_and_line(self, step: StepRow) -> list[Reason]:
        """How it stands, and the line of code that its last attempt failed by."""
        trace = () if step.failure is None else _read_step_failure(step.failure).trace
        return [self._open_step(step), *_line(trace, step.label)]

    def _open_step(self, step: StepRow) -> Reason:
        if step.kind is StepKind.TIMER:
            return self._timer(step)
        return self._attempted(step) if step.state is StepState.RUNNING else self._requested(step)

    def _timer(self, step: StepRow) -> Reason:
        at = step.not_before or self.now
        if at > self.now:
            says = (
                f"it sleeps until {self._at(at)}"
                if step.name == "sleep"
                else f"timer {step.label} fires at {self._at(at)}"
            )
            return Reason("sleeps", says, step.label, until=at)
        return Reason("timer_due", f"{wording.named(step)} is over since {self._at(at)}", step.label, since=at)

    def _attempted(self, step: StepRow) -> Reason:
        since = self.past.dispatched_at.get(step.ordinal)
        process = None if step.locked_by is None else self.running.rows.get(step.locked_by)
        where = f"process {step.locked_by}" if process is None else process_named(process)
        began = "" if since is None else f" since {self._at(since)}"
        says = f"{wording.named(step)}: {attempt_named(step)} runs at {where}{began}"
        until = step.complete_by
        if process is None or process.lease_until <= self.now:
            says += f", which is lost; {self._freed_by_others()}"
        elif until is not None and until > self.now:
            says += f" and must end by {self._at(until)}"
        elif until is not None:
            says += f"; its time was over at {self._at(until)}: the Supervisor decides{self._no_supervisor()}"
        if self.task.state is TaskState.COMPENSATING and step.kind is StepKind.STEP:
            says += "; it was begun before the undo, which waits for its end"
        if self.task.state is TaskState.ERROR:
            says += "; its result is kept when it comes"
        if step.failure is not None:
            says += f"; the attempt before failed: {wording.step_failure(step)}"
        return Reason("running", says + self._doubt(step), step.label, since, until, step.idempotency_key)

    def _requested(self, step: StepRow) -> Reason:
        name, due = wording.named(step), step.not_before
        if due is None:
            return Reason("waits_for_resume", f"{name} is asked for, and waits until the task is resumed", step.label)
        if due > self.now:
            return self._to_be_tried_again(step, due)
        says = f"{name} waits untaken since {self._at(due)}: {self._who_could_take(step, due)}"
        if step.wait_by is not None:
            says += f"; it fails when nobody takes it by {self._at(step.wait_by)} (wait_within)"
        if step.failure is not None:
            says += f"; the attempt before failed: {wording.step_failure(step)}"
        return Reason("untaken", says + self._doubt(step), step.label, due, step.wait_by, _key_in_doubt(step))

    def _to_be_tried_again(self, step: StepRow, due: Instant) -> Reason:
        is_cool_off = step.failure_count > 0 and step.failure_count % step_policy(step).supervision.attempts == 0
        why = "the round before is spent, and this is its cool-off" if is_cool_off else "the attempt before failed"
        says = (
            f"{wording.named(step)}: {attempt_named(step)} comes not before {self._at(due)}: {why}"
            f" ({wording.step_failure(step) or 'no reason is kept'})"
        )
        kind = "cool_off" if is_cool_off else "retry"
        return Reason(kind, says + self._doubt(step), step.label, None, due, _key_in_doubt(step))

    def _who_could_take(self, step: StepRow, due: Instant) -> str:
        ready = self.running.hosting_step(step.agent, step.name, step.app)
        if not ready:
            others = self.running.other_apps_hosting(step.agent, step.name, step.app)
            if others and (remedy := told_of_others(step.app, others)):
                return f"no process alive{of_app(step.app)} hosts Agent {step.agent}; {remedy}"
            if hosting := self.running.hosting(step.agent, step.app):
                names = _listed(map(process_named, hosting[:STEPS_TOLD_MAX]))
                return f"no process alive has its code: {names} hosts Agent {step.agent}, but not this step"
            hosts = f"no process alive hosts Agent {step.agent}; " if self.running.alive else ""
            return hosts + self._alive()
        names = _listed(map(process_named, ready[:STEPS_TOLD_MAX]))
        if seconds_between(due, self.now) < SOON_SECONDS:
            return f"Agent {step.agent} takes it at any moment at {names}"
        return f"Agent {step.agent} has no room at {names}: all its places are taken, or it does not answer"

    @staticmethod
    def _doubt(step: StepRow) -> str:
        return "; an earlier attempt may have happened" if step.in_doubt else ""

    # --- ended, and why
    def _since(self) -> str:
        return "" if self.task.ended_at is None else f" since {self._at(self.task.ended_at)}"

    def _processed(self) -> list[Reason]:
        may_undo = pivot_of(self.life) is None
        moved = ", except compensate, which undoes it" if may_undo else ""
        says = f"processed{self._since()}: it is done, and nothing moves it any more{moved}"
        return [Reason("ended", says, since=self.task.ended_at)]

    def _compensated(self) -> list[Reason]:
        why, nothing = ("", ()) if self.failure is None else (self.failure.reason, self.failure.nothing_to_undo)
        left = f"; completed with nothing to undo: {_listed(nothing)}" if nothing else ""
        says = (
            f"compensated{self._since()}, everything is undone: {why}{left}; nothing moves it any more except resubmit,"
            " which runs it again from the beginning"
        )
        line = [] if self.failure is None else _line(self.failure.trace, self.failure.step)
        return [Reason("ended", says, since=self.task.ended_at), *line]

    def _error(self) -> list[Reason]:
        failure = self.failure
        assert failure is not None
        code = f" [{failure.code}]" if failure.code else ""
        says = f"in error{self._since()}, it waits for a person: {failure.reason}{code}"
        found = [Reason("error", says, failure.step, since=self.task.ended_at)]
        line = _line(failure.trace, failure.step)
        if not is_expected(failure.trace):
            found, line = [*found, *line], []
        if (hint := _HINTS.get(failure.code) or _HINTS.get(failure.kind)) is not None:
            found.append(Reason("cause", hint, failure.step))
        found += self._undo_stopped() if self.task.undoing else self._forward_stopped()
        running = [step for step in self.life if step.state is StepState.RUNNING]
        found += map(self._attempted, running[:STEPS_TOLD_MAX])
        return [*found, *line, *self._told()]

    def _forward_stopped(self) -> list[Reason]:
        redo = to_be_redone(self.task, self.life)
        doubtful = [s for s in self.life if s.kind is StepKind.STEP and s not in redo and may_have_happened(s)]
        return [
            *(self._failed_step(step) for step in redo[:STEPS_TOLD_MAX]),
            *(self._in_doubt(step) for step in doubtful[:STEPS_TOLD_MAX]),
        ]

    def _failed_step(self, step: StepRow) -> Reason:
        doubt = "it is in doubt: it may have happened" if step.in_doubt else "it surely did not happen"
        edited = (
            "its arguments may not be edited until you answer it" if step.in_doubt else "its arguments may be edited"
        )
        times = wording.counted(step.failure_count, "attempt")
        after = f" after {times}" if step.failure_count else ""
        says = f"{wording.named(step)} failed{after} ({wording.step_failure(step)}); {doubt}; resubmit does it again, {edited}"
        return Reason(
            "failed_step", says + _to_be_asked(step), step.label, step.finished_at, None, step.idempotency_key
        )

    @staticmethod
    def _in_doubt(step: StepRow) -> Reason:
        says = f"{wording.named(step)} is {step.state} and in doubt: it may have happened{_to_be_asked(step)}"
        return Reason("in_doubt", says, step.label, step.finished_at, None, step.idempotency_key)

    def _undo_stopped(self) -> list[Reason]:
        found: list[Reason] = []
        for step in stuck_in_doubt(self.life)[:STEPS_TOLD_MAX]:
            says = (
                f"{wording.named(step)} may have happened and has no compensation: find out whether it did, then answer it;"
                f" only then resubmit goes on with the undo{_to_be_asked(step)}"
            )
            found.append(Reason("in_doubt", says, step.label, step.finished_at, None, step.idempotency_key))
        still_open = [
            step for step in self.life if step.kind is StepKind.COMPENSATION and step.state is not StepState.COMPLETED
        ]
        for step in still_open[:STEPS_TOLD_MAX]:
            key = step.idempotency_key if step.state is StepState.FAILED else _key_in_doubt(step)
            found.append(Reason("open_compensation", self._still_open(step), step.label, step.finished_at, None, key))
        if still_open:
            says = (
                "repair what the undo fails by, then resubmit goes on with it; or undo it by hand and answer"
                f" {_listed(UNDO_PREFIX + step.label for step in still_open[:STEPS_TOLD_MAX])}"
            )
            found.append(Reason("repair", says))
        return found

    @staticmethod
    def _still_open(step: StepRow) -> str:
        name = wording.named(step)
        if step.state is StepState.FAILED:
            doubt = "; it is in doubt: it may have happened" if step.in_doubt else ""
            return f"{name} failed ({wording.step_failure(step)}){doubt}{_to_be_asked(step)}"
        return f"{name} is still open{', and in doubt' if step.in_doubt else ''}{_to_be_asked(step)}"

    def _told(self) -> list[Reason]:
        alert = self.alert
        if alert is None:
            return []
        told = f"told to {_listed(alert.told)}" if alert.told else ""
        if alert.next_at is None:
            return [Reason("alert", f"its alert was {told or 'told to nobody: no sink is configured'}")]
        error = f": {alert.error}" if alert.error else ""
        tried = f"tried {alert.attempts} times{error}; again at {self._at(alert.next_at)}" if alert.attempts else ""
        nobody = (
            "" if self.running.with_role("supervisor") else "no process alive runs the role supervisor, which tells it"
        )
        why = "; ".join(part for part in (tried, nobody) if part) or "it is about to be told"
        says = f"its alert is {f'{told}, but ' if told else ''}not told {'to all' if told else 'to anybody'} yet: {why}"
        return [Reason("alert_untold", says, since=alert.opened_at, until=alert.next_at)]

    def _pivot(self) -> list[Reason]:
        pivot = pivot_of(self.life)
        if pivot is None:
            return []
        how = "has happened" if pivot.state is StepState.COMPLETED else "may have happened"
        says = f"past its pivot: {wording.named(pivot)} {how}, so nothing is undone any more and compensate is refused"
        return [Reason("pivot", says, pivot.label, since=pivot.finished_at)]


def _key_in_doubt(step: StepRow) -> str:
    return step.idempotency_key if step.in_doubt else ""


def _to_be_asked(step: StepRow) -> str:
    """How a person settles a doubt: the service knows what it did by the key that came with the call."""
    if not step.in_doubt:
        return ""
    return (
        f"; ask {step.agent} whether it knows the idempotency key {step.idempotency_key}, and say what it answers with"
        " `arriero task answer`"
    )


_HINTS = {
    "refused": "the workflow itself refused to go on (it raised Permanent)",
    "bug": "its workflow's code has a bug: mend the code, run the App anew, then resubmit; nothing was undone",
    "replay": "its workflow's code disagrees with what is recorded: bring back code that agrees, then resubmit; a time or a"
    " number that each run makes anew never agrees: compensate it",
    "unawaited": "its workflow's code asked for a step and never awaited it: mend the code, then resubmit",
    "lost": "see in the processes' logs why they died or froze before you resubmit it",
    "limit": "resubmit begins its limit anew",
    "refused_arguments": "bring back code that takes its arguments, then resubmit; or, as long as it has no steps, resubmit it with others",
}
