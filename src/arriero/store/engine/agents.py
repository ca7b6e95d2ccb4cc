"""Breakers of Agents in one transaction: opening by what calls showed, and the verbs of people. Shared by all stores."""

from ...answers import Answer, BreakerApplied, Refusal
from ...breakers import BreakerRow
from ...commands import BeginProbe, CommandOfBreaker, EndProbe, OperateAgent, TripBreaker
from ...core.breaker import close_after_ramp
from ...core.breaker_book import name_breaker
from ...core.breaker_verbs import operate_agent, trip_breaker
from ...core.changes import BreakerChange
from ...core.obsolete_rows import FENCE_FLOOR
from ...core.probe import begin_probe, end_probe
from ...events.breaker import BreakerClosed
from ...model import Instant
from ..sql.agent_rows import BreakerTable
from ..sql.store_rows import StoreRows
from .batch import Batch
from .transactions import Transactions


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

        An attempt that is to begin does that by itself. This is for breakers behind which no request waits any more.
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
