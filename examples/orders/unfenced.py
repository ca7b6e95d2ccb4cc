"""The worker of ``--break fence``: Agents that answer after their time, before a store that looks at no fence.

A negative control: the run must end with exit code 1, and the history must name the orders whose late reports counted.
The library has no switch for this; it is broken here, in this process only.
"""

from __future__ import annotations

import asyncio

from arriero.answers import Dispatch
from arriero.cli.main import main
from arriero.commands import Outcome
from arriero.core import transitions
from arriero.model import Instant, StepRow, StepState
from arriero.runtime import agent_host, attempt_run

LATER_ATTEMPTS_WAIT_SECONDS = 1.9
LATE_ANSWERS_WAIT_SECONDS = 0.8
"""With both, a late answer finds the next attempt under way wherever that begins within two seconds before it."""
TALKS_ON_SECONDS = 4.0
"""How long an Agent still speaks after ``complete_by``: longer than the slowest answer of the services takes."""

_checked = transitions.report_verdict


def _unchecked(step: StepRow | None, fence: int, now: Instant) -> str:
    if step is not None and step.state is StepState.RUNNING:
        return "applied"
    return _checked(step, fence, now)


class _TalksOn(attempt_run.AttemptRun):
    def __init__(self, host: agent_host.AgentHost, dispatch: Dispatch, deadline: float) -> None:
        super().__init__(host, dispatch, deadline + TALKS_ON_SECONDS)

    async def run(self) -> None:
        if self._step.fence > 1:  # let the late answer of the attempt before find this one under way
            await asyncio.sleep(LATER_ATTEMPTS_WAIT_SECONDS)
        await super().run()

    async def _run_tries(self) -> Outcome | None:
        outcome = await super()._run_tries()
        if self._time.remaining_seconds() < TALKS_ON_SECONDS:  # past its time
            await asyncio.sleep(LATE_ANSWERS_WAIT_SECONDS)
        return outcome


if __name__ == "__main__":
    transitions.report_verdict = _unchecked
    agent_host.AttemptRun = _TalksOn  # type: ignore[attr-defined,assignment]  # broken on purpose
    main()
