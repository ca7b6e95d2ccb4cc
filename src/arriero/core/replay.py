"""Workflow code plus its record, in recorded order, gives the open steps or the end. A pure function of both.

One recorded result is delivered, the code runs until nothing is ready, the steps it opened are collected. A live run
does exactly the same with results as they are recorded, so a replay cannot see another order than the first run did.
"""

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from ..declare.signals import Wait
from ..declare.steps import StepCall
from ..declare.workflows import ContinueAs, WorkflowCall
from ..errors import ForbiddenInWorkflow
from ..model import Instant, StepKind, StepRow, StepState, later
from ..model.failures import CapturedTraceback, TaskFailure
from ..model.instants import as_datetime
from ..model.signals import TIMER_NAME, is_note, is_patch, name_patch, name_reply
from ..system.traceback_capture import capture_awaits, capture_traceback
from .code_end import Identity, Raised, Returned, build_bug_failure, format_identity, judge_error
from .replay_hints import suggest_source
from .workflow_loop import WorkflowLoop

ASKED_SHOWN_MAX = 3  # of the steps that the code asks for in place of a recorded one


class RequestedStep(msgspec.Struct, frozen=True):
    """A step, child, timer, wait, reply or patch the code asked for. ``wait``: what a wait waits for.

    ``call``, ``definition``: that of a step and the step, or that of a workflow and the workflow.
    ``replies_to``: of a reply, the number of the request, which is its ``definition``.
    """

    identity: Identity
    arguments: str
    call: Any = None
    fire_at: Instant | None = None
    wait: Wait | None = None
    replies_to: int | None = None
    definition: Any = None


class _Aside(msgspec.Struct, frozen=True):
    """A recorded result that the code has not asked for (yet), from a branch that a resubmission left."""

    result: Callable[[], Any]
    at: Instant


class Execution:
    """One run of workflow code.

    Args:
        code: the coroutine of the code, not begun.
        seed: of the task, for ``random`` and ``uuid``.
        now: when the task was started, by the store's clock.
        convoy_state: of the task's convoy, as JSON text, when its turn came.
        tags: of the task, as JSON text; None: it has none.
    """

    def __init__(
        self,
        code: Coroutine[Any, Any, Any],
        *,
        seed: int,
        now: Instant,
        convoy_state: str | None = None,
        tags: str | None = None,
    ) -> None:
        self._code: Coroutine[Any, Any, Any] | None = code  # until it begins
        self._seed = seed
        self.now = now
        self.looked_at_time = False  # whether the code has asked what time it is, or when a timer is due
        self._loop = WorkflowLoop(self, seed)  # type: ignore[abstract]  # its refusals are set in a loop
        self._main: asyncio.Task[Any] | None = None
        self._waiting: dict[Identity, asyncio.Future[Any]] = {}
        self._occurrences: defaultdict[str, int] = defaultdict(int)
        self._is_closed = False
        self._draws = 0
        self._calls = 0
        self._unawaited: dict[int, StepCall[Any] | WorkflowCall[Any]] = {}
        self.asked: dict[Identity, RequestedStep] = {}
        self._new: list[RequestedStep] = []
        self._aside: dict[tuple[Identity, str], _Aside] = {}
        self.unseen: list[Identity] = []  # whose results came after the code had ended
        self.end: Returned | Raised | None = None
        self.convoy_state = convoy_state
        self.tags = tags
        self.kept_convoy_state: str | None = None
        self.published: str | None = None  # last, and not given to the store yet
        self._patches: dict[str, bool] = {}  # by name, what the code was answered
        self._ahead: list[StepRow] = []  # in a replay: what the code must come by
        self.stood_at: CapturedTraceback = ()  # when it was dropped, because it cannot continue

    def publish(self, text: str) -> None:
        """Publish a value with the next commit of the task."""
        self.published = text

    def keep_convoy_state(self, text: str) -> None:
        """Keep the convoy's state for the commit in which the task is processed."""
        self.kept_convoy_state = text

    # --- driving
    def begin(self) -> list[RequestedStep]:
        """Run the code to its first open steps; answers with them, in the order they were asked for."""
        code, self._code = self._code, None
        assert code is not None
        self._main = self._loop.create_task(code, context=Context())
        return self._run()

    def deliver(self, identity: Identity, result: Any, at: Instant) -> list[RequestedStep]:
        """Deliver one result (an exception is raised in the code); answers with what the code then asked for.

        Raises: KeyError - the code never asked for it: it disagrees with the record.
        """
        if self.end is not None:
            self.unseen.append(identity)
            return []  # the code has returned; a step it did not wait for ends on its own
        future = self._waiting.pop(identity)
        self.now = max(self.now, at)
        if not future.done():  # the code may have cancelled its wait; the step continued all the same
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
            return self._run()
        return []

    def set_aside(self, step: StepRow, result: Callable[[], Any], at: Instant) -> None:
        """Keep a result that the code does not ask for now. It is delivered when the code asks with the same arguments."""
        self._aside[identify_step(step), find_asked_arguments(step)] = _Aside(result, at)

    def asks_for(self, step: StepRow) -> bool:
        """Returns True if the code has asked for just this step."""
        asked = self.asked.get(identify_step(step))
        return asked is not None and is_same_request(asked, find_asked_arguments(step))

    def _deliver_set_aside(self, new: list[RequestedStep]) -> list[RequestedStep]:
        """Deliver results set aside to new requests; returns all requests, also those that followed from them."""
        asked = list(new)
        for one in new:
            same = (kept for kept in self._aside if kept[0] == one.identity and is_same_request(one, kept[1]))
            if (key := next(same, None)) is not None:
                aside = self._aside.pop(key)
                asked += self.deliver(one.identity, aside.result(), aside.at)
        return asked

    def _run(self) -> list[RequestedStep]:
        try:
            self._loop.run_ready()
        except ForbiddenInWorkflow as error:
            self._stop(Raised(TaskFailure("bug", str(error), code="spins")))
            return []
        except (KeyboardInterrupt, SystemExit) as error:
            self._stop(Raised(build_bug_failure(error)))
            return []
        new, self._new = self._new, []
        assert self._main is not None
        if self._loop.violation is not None:
            trace = capture_traceback(self._loop.violation)
            self._stop(Raised(TaskFailure("bug", str(self._loop.violation), code="forbidden", trace=trace)))
            return []
        if self._main.done():
            self._stop(self._judge(self._main, new))
        elif all(map(asyncio.Future.done, self._waiting.values())):
            reason = "workflow code waits for something that is not a step: nothing can wake it"
            self._stop(Raised(TaskFailure("bug", reason, code="stuck")))
        return self._deliver_set_aside(new) if self._aside else new

    def _stop(self, end: Returned | Raised) -> None:
        self.end = end
        if isinstance(end, Raised):
            self.note_position()
        self.close()

    def note_position(self, name: str = "") -> None:
        """Note where the code stands, or failed: its await of the step of that name, else the one of its own coroutine."""
        if self._main is None or self._main.done():
            self.stood_at = self.end.failure.trace if isinstance(self.end, Raised) else ()
            return
        waiting = [self._loop.find_waiting(one) for (_, asked, _), one in self._waiting.items() if asked == name]
        self.stood_at = next(filter(None, map(capture_awaits, waiting)), ()) or capture_awaits(self._main.get_coro())

    def close(self) -> None:
        """Drop the code where it stands."""
        self._is_closed = True
        self._loop.close()
        if self._code is not None:
            self._code.close()  # runs nothing of it
        self._main = None
        self._waiting.clear()
        self._loop.workflow_run = None  # else each keeps the other alive until the garbage collector comes by

    def _judge(self, main: asyncio.Task[Any], just_asked: list[RequestedStep]) -> Returned | Raised:
        if main.cancelled():
            return Raised(TaskFailure("bug", "workflow code cancelled itself", code="cancelled"))
        error = main.exception()
        if error is not None and not isinstance(error, ContinueAs):
            return judge_error(error)
        left = {_name_call(call) for call in self._unawaited.values()} | {
            one.identity[1] for one in just_asked if not is_note(*one.identity[:2])
        }
        if left:
            names = ", ".join(sorted(left))
            return Raised(
                TaskFailure("unawaited", f"call values were never awaited: {names}; await each, or do not make it")
            )
        return Returned(main.result()) if error is None else Returned(None, error.call)

    # --- what call values and arriero.sleep ask of us
    def note_created(self, call: StepCall[Any] | WorkflowCall[Any]) -> None:
        """A call value came to be; it must be awaited before the code returns."""
        self._calls += 1
        call.number = self._calls
        self._unawaited[self._calls] = call

    def note_replaced(self, call: StepCall[Any] | WorkflowCall[Any], by: StepCall[Any] | WorkflowCall[Any]) -> None:
        """``options()`` made another call value of it."""
        if self._unawaited.get(call.number) is call:
            del self._unawaited[call.number]
        self.note_created(by)

    def note_continued(self, call: WorkflowCall[Any]) -> None:
        """The code is about to end this run with the call of the next one, which is never awaited."""
        self._unawaited.pop(call.number, None)

    def open(self, call: StepCall[Any]) -> asyncio.Future[Any]:
        """The code awaits a step."""
        if self._unawaited.get(call.number) is call:  # else it was made outside of this run
            del self._unawaited[call.number]
        name = call.step.name
        key = call.changed.key
        if key is None:
            self._occurrences[name] += 1
            key = f"#{self._occurrences[name]}"
        return self._ask(RequestedStep((StepKind.STEP, name, key), call.arguments, call, definition=call.step))

    def open_child(self, call: Any) -> asyncio.Future[Any]:
        """The code awaits a workflow, which runs as another task. ``call``: a ``WorkflowCall``."""
        self._unawaited.pop(call.number, None)
        name, key = call.workflow.name, call.key
        if key is None:
            self._occurrences[f"child {name}"] += 1
            key = f"#{self._occurrences[f'child {name}']}"
        return self._ask(RequestedStep((StepKind.CHILD, name, key), call.arguments, call, definition=call.workflow))

    def open_timer(self, seconds: float) -> asyncio.Future[Any]:
        """The code sleeps."""
        self.looked_at_time = True
        self._occurrences[""] += 1
        identity = (StepKind.TIMER, TIMER_NAME, f"#{self._occurrences['']}")
        text = msgspec.json.encode({"seconds": seconds}).decode()
        return self._ask(RequestedStep(identity, text, fire_at=later(self.now, seconds)))

    def number_wait(self, name: str) -> str:
        """Return the key of the next wait of that name, which is opened with it."""
        self._occurrences[f"wait {name}"] += 1
        return f"#{self._occurrences[f'wait {name}']}"

    def open_wait(self, wait: Wait, key: str = "") -> asyncio.Future[Any]:
        """The code waits for a signal. ``key``: from ``number_wait``; empty: the next one."""
        identity = (StepKind.TIMER, wait.name, key or self.number_wait(wait.name))
        fire_at = None
        if wait.within is not None:
            self.looked_at_time = True
            fire_at = later(self.now, wait.within)
        return self._ask(RequestedStep(identity, wait.arguments, fire_at=fire_at, wait=wait))

    def reply(self, request: Any, signal: int, reply: str) -> None:
        """The code replies to the request with that number. ``request``: as declared. ``reply``: JSON text."""
        name = request.name
        self._occurrences[f"reply {name}"] += 1
        identity = (StepKind.TIMER, name_reply(name), f"#{self._occurrences[f'reply {name}']}")
        future = self._ask(RequestedStep(identity, reply, replies_to=signal, definition=request))
        future.cancel()  # nobody waits for it
        self._waiting.pop(identity, None)

    def look_ahead(self, record: Sequence[StepRow], branched_at: Instant | None) -> None:
        """Set what a replay is about to bring, before it begins; nothing, once it is over."""
        self._patches |= {step.name.partition(":")[2]: True for step in record if is_patch(step)}
        self._ahead = [step for step in record if not is_patch(step) and must_be_asked_for(step, branched_at)]

    def patched(self, name: str) -> bool:
        """Returns whether the task runs with a patch of its code. The first call decides for the whole life of the task.

        A record that continues beyond the call was made by code that had no such call, because a call leaves its mark.
        """
        known = self._patches.get(name)
        if known is None:
            known = self._patches[name] = not any(map(self._is_ahead, self._ahead))
            if known and not self._is_closed:
                self._new.append(RequestedStep((StepKind.TIMER, name_patch(name), "#1"), "{}"))
        return known

    def _is_ahead(self, step: StepRow) -> bool:
        """Returns True if the code has not asked for a recorded step yet, or has not got its result."""
        is_due = step.result_number is not None and identify_step(step) in self._waiting
        return is_due or not self.asks_for(step)

    def is_waiting_for(self, step: StepRow) -> bool:
        """Returns True if the code waits for just this row now."""
        future = self._waiting.get(identify_step(step))
        return future is not None and not future.done() and self.asks_for(step)

    def _ask(self, asked: RequestedStep) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        if self._is_closed:
            return future  # a `finally` block awaits while the code is dropped: nothing is asked for any longer
        if asked.identity in self.asked:
            _, name, key = asked.identity
            self._loop.refuse(f"step {name} was asked for twice under the key {key!r}; give each its own key")
        self.asked[asked.identity] = asked
        self._waiting[asked.identity] = future
        self._new.append(asked)
        return future

    # --- recorded time and chance
    def current_time(self) -> datetime:
        """The instant of the result delivered last; before the first, the start of the task."""
        self.looked_at_time = True
        return as_datetime(self.now)

    def random(self) -> random.Random:
        """A source of chance that gives the same in every replay."""
        self._draws += 1
        return random.Random(f"{self._seed}:{self._draws}")

    def uuid(self) -> uuid.UUID:
        """A random UUID (version 4) that is the same in every replay."""
        return uuid.UUID(int=self.random().getrandbits(128), version=4)


def _name_call(call: StepCall[Any] | WorkflowCall[Any]) -> str:
    return call.step.name if isinstance(call, StepCall) else call.workflow.name


def identify_step(step: StepRow) -> Identity:
    """Return the identity of a step in its task: kind, name and key; never its position."""
    return (step.kind, step.name, step.key)


def find_asked_arguments(step: StepRow) -> str:
    """Return the arguments that the code asked with, whatever an operator has sent in their place."""
    return step.arguments if step.asked is None else step.asked


def is_same_request(asked: RequestedStep, recorded: str) -> bool:
    """Returns True if the code asks with the recorded arguments, or with another JSON text of the same values.

    Other processes may have written a set in another order, and other releases a field that is no longer written. A wait is the
    same whatever it asks: a release may word a question in another way while tasks wait for the answer.
    """
    if asked.wait is not None or asked.arguments == recorded:
        return True
    if asked.replies_to is not None:
        return bool(asked.definition.mean_same(recorded, asked.arguments))
    return asked.call is not None and asked.definition.signature.mean_same(recorded, asked.arguments)


def may_be_left(step: StepRow, branched_at: Instant | None) -> bool:
    """Returns True if the code may no longer ask for a step: it was opened after a failure that is done again since."""
    return branched_at is not None and step.opened_at >= branched_at


def must_be_asked_for(step: StepRow, branched_at: Instant | None) -> bool:
    """Returns True if code that does not ask for a recorded step disagrees with the record."""
    return step.state is not StepState.WITHDRAWN and not may_be_left(step, branched_at)


class Record:
    """The record of a task's forward steps and timers, by their identity.

    Args:
        branched_at: of a resubmitted task: what was opened from here on followed a failure that is done again. The code
            may come by there later, or never, or ask under the same name for something else, with other arguments.
    """

    def __init__(self, steps: Sequence[StepRow], branched_at: Instant | None) -> None:
        self._branched_at = branched_at
        self._left = [step for step in steps if may_be_left(step, branched_at)]
        self._by_identity: defaultdict[Identity, list[StepRow]] = defaultdict(list)
        for step in steps:
            self._by_identity[identify_step(step)].append(step)

    def find(self, asked: RequestedStep) -> StepRow | None:
        """Return the row of just this request; None: it is not recorded."""
        rows = self._by_identity.get(asked.identity, ())
        return next((row for row in rows if is_same_request(asked, find_asked_arguments(row))), None)

    def find_disagreement(self, asked: RequestedStep, asks_for: Callable[[StepRow], bool]) -> str | None:
        """Return how a request of the code differs from what was recorded; None if it is the same or new.

        ``asks_for``: returns True if the code asks for this row. If a row with the same name and arguments is not asked for,
        the code counted that step as another occurrence before. Then nobody can say whether they are the same step.
        """
        if self.find(asked) is not None:
            return None
        kind, name, key = asked.identity
        for row in self._left if kind is StepKind.STEP and key.startswith("#") else ():
            same = (row.kind, row.name, find_asked_arguments(row)) == (
                kind,
                name,
                asked.arguments,
            ) and row.key.startswith("#")
            if same and row.state is not StepState.WITHDRAWN and not asks_for(row):
                return f"the code asks for step {name} as {key}, with these arguments it was {row.key} before; give it a key="
        for row in self._by_identity.get(asked.identity, ()):
            if not may_be_left(row, self._branched_at):
                before = find_asked_arguments(row)
                hinted = suggest_source(before, asked.arguments)
                return (
                    f"step {row.label} was recorded with the arguments {before}, the code now asks with {asked.arguments}"
                    f"{hinted and '; '}{hinted}"
                )
        return None

    def is_to_be_opened(self, asked: RequestedStep) -> bool:
        """Returns True if a request is not in the record, or was withdrawn or set back there."""
        row = self.find(asked)
        return row is None or row.state is StepState.WITHDRAWN


def replay(
    execution: Execution,
    steps: Sequence[StepRow],
    result_of: Callable[[StepRow], Any],
    branched_at: Instant | None = None,
) -> tuple[list[RequestedStep], TaskFailure | None]:
    """Bring fresh code to where its record ends.

    Args:
        execution: not begun.
        steps: forward steps and timers of the task, as recorded.
        result_of: the value or exception of a recorded result, read through the codec.
        branched_at: see Record; results that the code does not ask for now are set aside until it does.
    Returns: what the code asks for beyond the record, in order, also what was withdrawn or set back; and how code and
        record disagree, None if they agree.
    """
    if not steps:
        return execution.begin(), None
    execution.look_ahead(steps, branched_at)
    steps = [step for step in steps if not is_patch(step)]
    record = Record(steps, branched_at)
    asked = list(execution.begin())
    for step in sorted((s for s in steps if s.result_number is not None), key=lambda s: s.result_number or 0):
        identity, at = identify_step(step), step.delivered_at or execution.now
        if execution.end is None and not execution.asks_for(step):
            if may_be_left(step, branched_at):
                execution.set_aside(step, partial(result_of, step), at)
                continue
            if identity not in execution.asked:
                instead = _describe_unrecorded(execution, steps)
                return [], build_disagreement(
                    f"step {step.label} has a recorded result, but the code no longer asks for it there{instead}",
                    step.name,
                )
            return [], build_disagreement(
                record.find_disagreement(execution.asked[identity], execution.asks_for)
                or f"step {step.label} is another",
                step.name,
            )
        asked += execution.deliver(identity, result_of(step), at)
    execution.look_ahead((), branched_at)
    for one in asked:
        if (why := record.find_disagreement(one, execution.asks_for)) is not None:
            return [], build_disagreement(why, one.identity[1])
    missing = [step for step in steps if not execution.asks_for(step) and must_be_asked_for(step, branched_at)]
    if missing:
        instead = _describe_unrecorded(execution, steps)
        return [], build_disagreement(
            f"the code no longer asks for the recorded step {missing[0].label}{instead}", missing[0].name
        )
    return [one for one in asked if record.is_to_be_opened(one)], None


def _describe_unrecorded(execution: Execution, steps: Sequence[StepRow]) -> str:
    """Describe what the code does in place of a recorded step: the steps that it asks for and the record does not have."""
    known = {identify_step(step) for step in steps}
    fresh = [format_identity(identity) for identity in execution.asked if identity not in known]
    if fresh:
        return f"; it asks for {', '.join(fresh[:ASKED_SHOWN_MAX])} instead, which the record does not have"
    return "" if execution.end is None else "; it ends without it"


def build_disagreement(why: str, step: str = "") -> TaskFailure:
    """Build the failure of a task whose code and record disagree. ``step``: name of the one that was not expected."""
    remedy = "; if its code was changed, run the release that recorded it, or give a changed step another name or key"
    return TaskFailure("replay", f"code and record disagree: {why}{remedy}", step, "replay")
