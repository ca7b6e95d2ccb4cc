"""Recovers overdue and failed steps, on the leader: load, decide, apply. It knows no business rule and needs no user code."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from ..core.lease import on_stuck
from ..core.supervision import RedispatchSlots, choose_period, on_limit_passed, on_overdue, on_starved
from ..errors import StoreError
from ..explain.standstills import Standstill, build_expiry_failure, find_standstill_in_the_way
from ..model import MICROSECONDS, Instant, Loaded, StepRow
from ..model.answers import Answer, Applied, Refusal
from ..model.commands import EndByLimit, FreeTask, Recover
from ..model.moves import Outcome, RetryAsked
from ..store.contract import Overdue
from ..system.loops import WarningThrottle
from .process_context import ProcessContext

logger = logging.getLogger("arriero")

# That a pass waits for its answers. A decision whose task a stranger's transaction has open gets its answer when that
# ends; it must not keep the others from their recovery meanwhile.
ANSWER_SECONDS = 1.0
Decision = Recover | EndByLimit | FreeTask
Subject = tuple[type[Decision], int, int | None]  # what a decision is about: its step or task, and the fence


class Supervisor:
    """The Supervisor of one process; it acts only while it leads.

    Args:
        standstills: of the event loop of the process that runs a step, as far as they are known here.
    """

    def __init__(
        self,
        context: ProcessContext,
        standstills: Callable[[StepRow], Iterable[Standstill]] = lambda _: (),
    ) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = settings = context.settings
        self._standstills = standstills
        self._asked: set[Subject] = set()  # without an answer yet, of this pass or an earlier one
        self._slots = RedispatchSlots(settings.redispatch_per_second_max)
        self._period = settings.supervise_seconds
        self._past_terms = WarningThrottle(logger, context.clock.monotonic)
        self.refused = 0
        self.refused_terms = 0  # of those, because another process leads by now

    @property
    def period_seconds(self) -> float:
        """Seconds until the next pass, as of the last one."""
        return self._period

    async def tick(self, term: int) -> int:
        """Make one pass under a term. Returns how many commands were written by its end."""
        settings = self._settings
        last, self._period = self._period, settings.supervise_seconds  # it stays short if the pass fails
        overdue = await self._store.load_overdue(
            settings.batch_max, settings.progress_seconds, settings.supervise_seconds_max
        )
        loaded_at = self._clock.monotonic()
        self._slots.forget_before(overdue.now)
        written = 0
        of_this_pass: set[Subject] = set()
        all_answered = asyncio.Event()

        def count_answer(command: Decision, answer: Answer | BaseException) -> None:
            nonlocal written
            subject = _build_subject(command)
            if isinstance(answer, Applied):
                written += 1
                self._context.on_applied(command, answer)
            self._asked.discard(subject)
            of_this_pass.discard(subject)
            self._note(answer)
            if not of_this_pass:
                all_answered.set()

        for command in self._decide(overdue, term):
            subject = _build_subject(command)
            if subject not in self._asked:
                self._asked.add(subject)
                of_this_pass.add(subject)
                self._context.committer.put(command, partial(count_answer, command))
        if of_this_pass:
            await self._clock.idle(all_answered, ANSWER_SECONDS)
        self._period = self._choose_period(last, overdue, self._clock.monotonic() - loaded_at)
        return written

    def _choose_period(self, last: float, overdue: Overdue, elapsed: float) -> float:
        found = (overdue.expired, overdue.starved, overdue.past_limit, overdue.stuck, self._asked)
        next_at = overdue.next_at
        return choose_period(
            last,
            found_overdue=any(found),
            next_deadline_in=None if next_at is None else (next_at - overdue.now) / MICROSECONDS - elapsed,
            period_min=self._settings.supervise_seconds,
            period_max=self._settings.supervise_seconds_max,
        )

    def _decide(self, overdue: Overdue, term: int) -> list[Decision]:
        decisions: list[Callable[[], Decision]] = []
        decisions += [
            partial(self._on_expired, step, overdue.now, term)
            for step in overdue.expired
            if (Recover, step.step_no, step.fence) not in self._asked  # one decision takes one slot
        ]
        decisions += [partial(self._on_starved, step, term) for step in overdue.starved]
        decisions += [partial(self._end_by_limit, loaded, term) for loaded in overdue.past_limit]
        decisions += [
            partial(on_stuck, loaded, self._context.actor, term, self._settings.lost_processes_max)
            for loaded in overdue.stuck
        ]
        return [command for decide in decisions if (command := self._try_to_decide(decide)) is not None]

    def _try_to_decide(self, decide: Callable[[], Decision]) -> Decision | None:
        """Decide, or log the failure: a row that cannot be decided about (another release wrote it) must not block the others."""
        try:
            return decide()
        except Exception:
            logger.exception("a row could not be decided about; it is left as it is")
            return None

    def _on_expired(self, step: StepRow, now: Instant, term: int) -> Recover:
        standstill = find_standstill_in_the_way(step, self._standstills(step))
        why = None if standstill is None else build_expiry_failure(step, standstill)
        random = self._context.ports.random
        outcome = on_overdue(step, now, jitter=random.random(), why=why)
        if isinstance(outcome, RetryAsked):
            not_before = self._slots.take(outcome.not_before, jitter=random.random())
            outcome = msgspec.structs.replace(outcome, not_before=not_before)
        return self._recover(step, outcome, term, starved=False)

    def _on_starved(self, step: StepRow, term: int) -> Recover:
        return self._recover(step, on_starved(step), term, starved=True)

    def _recover(self, step: StepRow, outcome: Outcome, term: int, *, starved: bool) -> Recover:
        return Recover(
            actor=self._context.actor,
            step_no=step.step_no,
            fence=step.fence,
            starved=starved,
            outcome=outcome,
            term=term,
        )

    def _end_by_limit(self, loaded: Loaded, term: int) -> EndByLimit:
        task = loaded.task
        return EndByLimit(
            actor=self._context.actor,
            task_no=task.task_no,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            ending=on_limit_passed(loaded),
            term=term,
        )

    def _note(self, answer: Answer | BaseException) -> None:
        if isinstance(answer, BaseException) and not isinstance(answer, StoreError):  # those come as the process ends
            logger.error("a decision of the Supervisor could not be written: %r", answer)
        self.refused += not isinstance(answer, Applied)
        if isinstance(answer, Refusal) and answer.verdict == "old_term":
            self.refused_terms += 1
            told = f"{answer.detail}; so far {self.refused_terms} of this process"
            self._past_terms.warn("another process leads, so a decision made here changed nothing: %s", Exception(told))


def _build_subject(command: Decision) -> Subject:
    number = command.step_no if isinstance(command, Recover) else command.task_no
    return type(command), number, command.fence
