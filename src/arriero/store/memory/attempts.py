"""Recent attempts in the memory store."""

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from ...inspection.attempts import AttemptSurvey, Retrying
from ...model import Instant, StepKind, StepRow, StepState
from ..attempts import COMMITS_MAX, LOOKED_AT_MAX, ends_in, requests_of, retrying_of
from .rows import MemoryUpkeep

_columns = attrgetter("name", "key", "kind", "attempt", "failure_count", "failure", "state", "not_before")


class MemoryAttempts(MemoryUpkeep):
    """See ``store.attempts``."""

    async def survey_attempts(self, *, steps: int = LOOKED_AT_MAX, commits: int = COMMITS_MAX) -> AttemptSurvey:
        now = self.now()
        rows = [row for of_task in self.steps.values() for row in of_task.values() if row.kind is not StepKind.TIMER]
        pending = [row for row in rows if row.state is StepState.PENDING and row.not_before is not None]
        running = [row for row in rows if row.complete_by is not None]
        agents = sorted({row.agent for row in pending})
        looked_at = [row for agent in agents for row in _latest([one for one in pending if one.agent == agent])[:steps]]
        found = sorted((*looked_at, *running[:steps]), key=lambda row: row.step_no)
        last = [(row.task_no, row.at, bytes(row.events).decode()) for row in reversed(self.log[-commits:])]
        ends, ends_from = ends_in(last, commits, lambda _: {row.step_no: row.agent for row in rows})
        return AttemptSurvey(
            now=now,
            retrying=tuple(self._build_retrying(row) for row in found if row.failure_count > 0),
            requests=requests_of(
                [_requests([row.not_before for row in pending if row.agent == agent], agent, now) for agent in agents],
                list(Counter(row.agent for row in running).items()),
            ),
            ends=ends,
            ends_from=ends_from,
        )

    async def retrying_steps(self, task_nos: Sequence[int]) -> list[Retrying]:
        found: list[Retrying] = []
        for task_no in sorted({number for number in task_nos if number in self.tasks}):
            steps = [row for row in self.steps_of(task_no) if row.failure_count > 0]
            steps = [row for row in steps if row.state in (StepState.PENDING, StepState.RUNNING)]
            if steps:
                found.append(self._build_retrying(max(steps, key=lambda row: (row.failure_count, -row.step_no))))
        return found

    def _build_retrying(self, row: StepRow) -> Retrying:
        return retrying_of((row.agent, row.task_no, self.tasks[row.task_no].task_id, *_columns(row)))


def _latest(rows: list[StepRow]) -> list[StepRow]:
    return sorted(rows, key=lambda row: row.not_before or 0, reverse=True)


def _requests(times: list[Instant | None], agent: str, now: Instant) -> tuple[str, int, Instant | None, int]:
    due = [at for at in times if at is not None and at <= now]
    return agent, len(due), min(due, default=None), len(times) - len(due)
