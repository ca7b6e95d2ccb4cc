"""The worker of ``--break fence``: Agents that answer after their time, before a store that looks at no fence.

A negative control: the run must end with exit code 1, and the history must name the orders whose late reports counted.
The library has no switch for this; it is broken here, in this process only.
"""

from __future__ import annotations

import asyncio

from arriero.cli.main import main
from arriero.core import transitions
from arriero.model import Instant, StepRow, StepState
from arriero.model.answers import Dispatch
from arriero.model.moves import Outcome
from arriero.runtime import agent_host, attempt_run
from arriero.runtime.hosted_agent import HostedAgent

TALKS_ON_SECONDS = 4.0
"""Seconds that an Agent still speaks after ``complete_by``: enough for a slow answer and for the next attempt to begin."""
LATE_ANSWER_SECONDS = 1.0
"""Seconds that the next attempt waits for a late report: a hanging call brings none, and its step must end, too."""

ANSWERS_LATE_EVERY = 20
"""One task in so many, the first one included, gets late answers: the kills may end every slow answer before it comes."""

_latest: dict[int, _TalksOn] = {}
"""By step: its latest attempt in this process."""

_checked = transitions.report_verdict


def _unchecked(step: StepRow | None, fence: int, now: Instant) -> str:
    if step is not None and step.state is StepState.RUNNING:
        return "applied"
    return _checked(step, fence, now)


class _TalksOn(attempt_run.AttemptRun):
    """An attempt that reports after its time, while the next attempt of its step is under way."""

    def __init__(
        self, parts: attempt_run.AttemptParts, hosted: HostedAgent, dispatch: Dispatch, deadline: float
    ) -> None:
        super().__init__(parts, hosted, dispatch, deadline + TALKS_ON_SECONDS)
        self._next_has_begun = asyncio.Event()

    async def run(self) -> None:
        earlier, _latest[self._step.step_no] = _latest.get(self._step.step_no), self
        if earlier is not None:
            earlier._next_has_begun.set()
            # Its late report finds this attempt under way.
            await asyncio.wait({earlier.wait_until_over()}, timeout=LATE_ANSWER_SECONDS)
        await super().run()

    async def _run_tries(self) -> Outcome | None:
        outcome = await super()._run_tries()
        is_past_its_time = self._time.remaining_seconds() < TALKS_ON_SECONDS
        answers_late = self._step.attempt == 1 and self._step.task_no % ANSWERS_LATE_EVERY == 1
        if outcome is not None and (is_past_its_time or answers_late):
            await self._next_has_begun.wait()  # or until this attempt is cancelled, if none follows
        return outcome


if __name__ == "__main__":
    transitions.report_verdict = _unchecked
    agent_host.AttemptRun = _TalksOn  # type: ignore[attr-defined]  # broken on purpose
    main()
