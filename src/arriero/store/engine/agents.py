"""Operations about Agents: breakers, and what opens them; counts of calls and backlogs; Agents outside of Python."""

import secrets
from collections.abc import Sequence
from functools import partial

from ...core.agent_metrics import find_first_kept, fold_counts, may_be_written
from ...core.breaker import close_after_ramp
from ...core.breaker_book import name_breaker
from ...core.breaker_verbs import begin_probe, end_probe, operate_agent, trip_breaker
from ...core.changes import BreakerChange
from ...core.purging import FENCE_FLOOR
from ...events.store import BreakerClosed
from ...inspection.facts import AgentMeasurements, Backlog, CountsRow
from ...model import Instant
from ...model.agents import BreakerRow
from ...model.answers import Answer, BreakerApplied, Refusal
from ...model.commands import BeginProbe, CommandOfBreaker, EndProbe, OperateAgent, TripBreaker
from ..contract import COUNTED_MAX, FOLDED_AT_ONCE, SECRET_BYTES, HeldAttempt
from ..sql.agent_rows import BreakerTable
from ..sql.store_rows import StoreRows
from .batch import Batch
from .transactions import Lane, Transactions


class RemoteAgentOperations(Transactions):
    """Secrets of the store, and attempts that are running outside."""

    async def read_secret(self, name: str) -> bytes:
        """``SECRET_BYTES`` random bytes, the same for all processes; made when they are first asked for, and again in each epoch.

        Raises: MissingRight - who may only read the store reads no secret.
        """
        kept = await self._read(lambda rows: rows.select_secret(name))
        if (
            kept is None
        ):  # two processes may make one at the same time: what is kept first counts, and each reads what is kept
            value = secrets.token_hex(SECRET_BYTES)
            await self._write(lambda rows: rows.add_secret(name, value), Lane.OUTBOX)
            kept = await self._read(lambda rows: rows.select_secret(name))
        assert kept is not None
        return bytes.fromhex(kept)

    async def list_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        """The attempts of these steps that are running, no matter who holds them, by step_no."""
        return await self._read(lambda rows: rows.select_running_attempts(step_nos))


def fold_app(rows: StoreRows, app: str) -> int:
    """Fold old minutes of an App. The sum is locked first, so the one who folds at the same time finds the rows gone."""
    total = rows.lock_total(app)
    old = rows.select_counts_before(app, find_first_kept(rows.read_clock()), FOLDED_AT_ONCE)
    if old:
        rows.put_total(fold_counts(total, old))
        rows.remove_counts(old)
    return len(old)


class AgentMetricsOperations(Transactions):
    """Counts of the calls of Agents, and what waits for them."""

    async def put_agent_counts(self, rows: Sequence[CountsRow]) -> None:
        """Keep what a process counted in some minutes, as it stands: repeating it changes nothing.

        Left out: rows of a process that is retired or unknown; minutes that may not be written any longer
        (``core.agent_metrics.may_be_written``); a row with fewer calls than the one that is kept.
        """

        def put(table: StoreRows) -> None:
            now = table.read_clock()
            for row in rows:
                if may_be_written(row.minute, now):
                    table.put_counts(row)

        await self._write(put, Lane.OUTBOX)  # not UPKEEP: on SQLite that would cost the rows that are remembered

    async def fold_agent_counts(self) -> int:
        """Add minutes that are no longer kept to the sum of their App, and remove them in the same transaction.

        At most ``FOLDED_AT_ONCE`` of each App. Returns how many rows no longer exist; two that fold at the same time do not count twice.
        """
        before = find_first_kept(self.now())  # found by reading, so that nothing is locked where nothing is old
        apps = await self._read(lambda rows: rows.select_apps_to_fold(before), Lane.SURVEYS)
        return sum([await self._write(partial(fold_app, app=app), Lane.UPKEEP) for app in apps])

    async def measure_agents(self) -> AgentMeasurements:
        """All counts, and the due requests and running attempts of each Agent, as of one moment."""

        def measure(rows: StoreRows) -> AgentMeasurements:
            now = rows.read_clock()
            counts, loads = rows.select_all_counts(), rows.measure_loads(now)
            return AgentMeasurements(now=now, counts=tuple(counts), loads=tuple(loads))

        return await self._read(measure, Lane.SURVEYS)

    async def measure_backlog(self) -> Backlog:
        """Measure the backlog. It reads only unfinished tasks and steps, and at most a fixed number of each kind."""
        return await self._read(lambda rows: rows.select_backlog(rows.read_clock(), COUNTED_MAX), Lane.SURVEYS)


def change_breaker(command: CommandOfBreaker, rows: BreakerTable) -> Answer:
    """Apply a command to one breaker. Its row is made if there is none and something is to be kept."""
    app, agent, target = command.app, command.agent, command.target
    breaker = rows.lock_breaker(app, agent, target)
    if breaker is None:
        unopened = BreakerRow(app=app, agent=agent, target=target, fence=rows.read_floor(FENCE_FLOOR))
        change = _decide(command, unopened, rows.read_clock())
        if isinstance(change, Refusal):
            return change
        while breaker is None:  # upkeep may just have removed one that another process added
            rows.add_breaker(unopened)
            breaker = rows.lock_breaker(app, agent, target)
    work = Batch(rows, rows.read_clock())
    change = _decide(command, breaker, work.now)
    if isinstance(change, Refusal):
        return change
    work.write_breaker(change, command.actor)
    return BreakerApplied(change.row)


def _decide(command: CommandOfBreaker, breaker: BreakerRow, now: Instant) -> BreakerChange | Refusal:
    match command:
        case TripBreaker():
            return trip_breaker(command, breaker, now)
        case OperateAgent():
            return operate_agent(command, breaker, now)
        case BeginProbe():
            return begin_probe(command, breaker, now)
        case EndProbe():
            return end_probe(command, breaker, now)


class BreakerOperations(Transactions):
    """Breakers of Agents. Commands open them and act on them: see ``apply``."""

    async def list_breakers(self) -> list[BreakerRow]:
        """All breakers that were ever opened or paused, by Agent, App and target."""
        return await self._read(lambda rows: rows.select_all_breakers())

    async def close_recovered_breakers(self, actor: str) -> int:
        """Close the breakers whose ramp is over; answers how many.

        An attempt that is to begin does that by itself. This is for breakers behind which no request waits any longer.
        """
        now = self.now()
        half_open = await self._read(lambda rows: rows.select_half_open_breakers())
        recovered = [row for row in half_open if close_after_ramp(row, now) is not row]
        if not recovered:
            return 0

        def close(rows: StoreRows) -> int:
            work = Batch(rows, rows.read_clock())
            count = 0
            for found in recovered:
                row = rows.lock_breaker(found.app, found.agent, found.target)
                closed = row if row is None else close_after_ramp(row, work.now)
                if closed is not None and closed is not row:
                    work.write_breaker(BreakerChange(closed, [BreakerClosed(*name_breaker(closed))]), actor)
                    count += 1
            return count

        return await self._write(close)
