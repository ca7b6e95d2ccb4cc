"""One request after the other in the transaction of a Take: how they are found, and what lets one begin."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...answers import Dispatch
from ...commands import Take
from ...core import transitions
from ...core.breaker_book import (
    NOTHING_BARRED,
    Barred,
    bar_failed,
    bar_retries,
    find_breaker,
    list_barred,
    list_outages,
)
from ...core.due import WantedRequests
from ...core.lease import is_on_probation
from ...core.limits import LimitBook
from ...core.routing import Ways
from ...model import Instant, StepRow
from ..sql.agent_rows import CommandRows
from .batch import Batch, complete_within


class TakeTransaction:
    """State of one Take: the requests taken so far."""

    def __init__(self, command: Take, rows: CommandRows) -> None:
        self.command = command
        self.rows = rows
        self.dispatches: list[Dispatch] = []
        self._probation = command.probation
        self._retries = dict(command.retries)  # that may still be taken, of Agents with a budget
        self._turned_away: dict[str, Barred] = {}  # by Agent: what a breaker did not let through
        self._takes_failed = False  # requests that failed in an outage that lasts, too

    def list_barred(self, agent: str) -> Barred:
        """List the targets that the breakers of an Agent and the retry budget of the process do not let through."""
        barred = list_barred(self.rows.breakers(agent), self.rows.read_clock())
        barred = barred.joined_with(self._turned_away.get(agent, NOTHING_BARRED))
        return bar_retries(barred, self.rows.breakers(agent)) if self._retries.get(agent) == 0 else barred

    def _list_barred_canaries(self, agent: str) -> Barred:
        barred = self.list_barred(agent)
        return barred if self._takes_failed else bar_failed(barred, self.rows.breakers(agent))

    @contextmanager
    def takes_failed(self, agent: str) -> Iterator[bool]:
        """Take canaries also of requests that failed in the outage: those that failed longest ago come first.

        Else a request that always fails would be the canary again and again, and those behind it would wait for ever.
        Yields False if no breaker of the Agent lets a canary through.
        """
        self._takes_failed = True
        may_go = list_outages(self.rows.breakers(agent)) - self.list_barred(agent).targets
        yield bool(may_go)
        self._takes_failed = False

    def _want(self, agent: str, priority_from: int, barred: Barred) -> WantedRequests:
        return WantedRequests(self.command, agent, self._probation, priority_from, barred, self._takes_failed)

    def find_due(self, agent: str, limit: int, priority_from: int, *, keyless: bool = False) -> Sequence[StepRow]:
        """Lock due requests of an Agent in their order."""
        wanted = self._want(agent, priority_from, self._list_barred_canaries(agent))
        return self.rows.lock_takeable(wanted, limit, keyless=keyless)

    def find_due_of_keys(self, agent: str, keys: Sequence[str], of_each: int, priority_from: int) -> Sequence[StepRow]:
        """Lock the first due requests of some keys."""
        wanted = self._want(agent, priority_from, self._list_barred_canaries(agent))
        return self.rows.lock_takeable_of_keys(wanted, keys, of_each)

    def find_movable_of_keys(
        self, sibling: str, keys: Sequence[str], of_each: int, priority_from: int, ways: Ways
    ) -> Sequence[StepRow]:
        """Lock the first requests of some keys that another Agent may take over."""
        wanted = self._want(sibling, priority_from, ways.barred)
        found = self.rows.lock_takeable_of_keys(wanted, keys, of_each)
        return [step for step in found if ways.lead(step)]

    def find_movable(
        self, sibling: str, limit: int, priority_from: int, *, to: str, closed: Barred, waited_since: Instant
    ) -> Sequence[StepRow]:
        """Lock due requests of ``sibling`` that another Agent may take over."""
        ways = Ways(closed=closed, barred=self.list_barred(to), waited_since=waited_since)
        return self.rows.lock_movable(self._want(sibling, priority_from, ways.barred), limit, ways)

    def take(self, step: StepRow, limits: LimitBook | None = None, *, moved_to: str = "") -> bool:
        """Take a request that this transaction has locked. Returns False if it must wait.

        Args:
            limits: of the Agent that takes it.
            moved_to: the Agent that takes it over from its own.
        """
        rows, agent = self.rows, moved_to or step.agent
        task = rows.task(step.task_no)
        assert task is not None
        is_retry = step.taken and agent in self._retries and not self._is_probed(step)
        if is_retry and not self._retries[agent]:
            return False
        if is_on_probation(task):
            if self._probation not in (None, task.task_no):
                return False
            self._probation = task.task_no  # of those on probation this one alone
        work = Batch(rows, rows.read_clock())
        change = transitions.take(
            task, step, self.command.process_no, work.now, complete_within(step), rows, limits, moved_to
        )
        if change is None:
            self._turned_away[agent] = self._turned_away.get(agent, NOTHING_BARRED).with_request(step)
            return False
        work.write(change, self.command.actor)
        self.dispatches += change.dispatches
        if is_retry:
            self._retries[agent] -= 1
        return True

    def _is_probed(self, step: StepRow) -> bool:
        breaker = find_breaker(self.rows.breakers(step.agent), step)
        return breaker is not None and breaker.is_outage
