"""A fault: shared rows of every kind that nothing in the world needs cannot be read, to the end. Everything must end all the same."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from arriero.audit.check import Violation
from arriero.inspection.facts import CountsRow
from arriero.model import MICROSECONDS, ConvoyRow, Instant, LedgerRow, LedgerState, TailRow
from arriero.model.agents import AgentLimitsRow, BreakerRow
from arriero.model.leases import LeaseRow
from arriero.model.schedules import DeclareSchedule, ScheduleApplied, ScheduleDeclaration, Timing
from arriero.store.quarantine import UNREADABLE
from arriero.store.readable import name_row

if TYPE_CHECKING:
    from .world import World

SHARE = 0.2  # of the seeds with operators and without a damaged task
NOBODY, NUMBER = "nobody", 999_999  # the name and the number of what nothing in a world needs
UNKNOWN = "nonsense"
UNTYPED: Any = 3  # where a text belongs
STRIKES_SECONDS_MAX = 8.0


class Bystanders:
    """The rows of one world.

    Args:
        random: a separate source, so that a world without such rows is the same as before.
    """

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._added: list[tuple[dict[Any, Any], Any]] = []
        self._names: set[str] = set()  # of rows that an operator may be notified of

    async def strike(self) -> None:
        """Add rows of some kinds, once the processes of the world have written theirs."""
        await asyncio.sleep(self._random.uniform(0.5, STRIKES_SECONDS_MAX))
        kinds = self._list_kinds()
        if self._world.faults.strikes("shared_damage", self._random):
            for add in self._random.sample(kinds, self._random.randint(3, len(kinds))):
                added = add()
                if added is not None:
                    await added

    def _list_kinds(self) -> list[Callable[[], Awaitable[None] | None]]:
        kinds: list[Callable[[], Awaitable[None] | None]] = [
            self._add_breakers,
            self._add_limits,
            self._add_lease,
            self._add_schedule,
            self._add_process,
        ]
        kinds += [self._add_counts, self._add_ledger, self._damage_rates]
        return kinds if self._world.keys is not None else [*kinds, self._add_convoy]  # keys are judged all together

    def _add(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        self._names.add(name_row(row))
        self._added.append((table, key))
        table[key] = row

    def _add_breakers(self) -> None:
        """One of another target of each Agent: a Take of the Agent reads it."""
        app = self._world.app.name
        for agent in self._world.app.agents:
            state: Any = UNKNOWN
            row = BreakerRow(app=app, agent=agent.name, target=NOBODY, state=state)
            self._add(self._world.store.breaker_rows, (app, agent.name, NOBODY), row)

    def _add_limits(self) -> None:
        for agent in self._world.app.agents:
            row = AgentLimitsRow(
                app=NOBODY,
                agent=agent.name,
                limits=UNKNOWN,
                process_no=NUMBER,
                declared_at=Instant(0),
                has_keyless=False,
                look_at=Instant(0),
                last_keys="",
            )
            self._add(self._world.store.limit_rows, (NOBODY, agent.name), row)

    def _damage_rates(self) -> None:
        """Those that the world uses: each is used up until its calls no longer count."""
        rates = self._world.store.rate_rows
        for key, row in rates.items():
            rates[key] = replace(row, begun=UNKNOWN)
            self._names.add(name_row(row))

    def _add_lease(self) -> None:
        row = LeaseRow(name=NOBODY, term=1, holder=NOBODY, until=Instant(0), broken_reason=UNTYPED)
        self._add(self._world.store.leases, NOBODY, row)

    async def _add_schedule(self) -> None:
        """One that is due, in a world without others: those are judged all together."""
        world, timing = self._world, Timing(every=3_600 * MICROSECONDS)
        if world.timetables is not None:
            return
        declaration = ScheduleDeclaration(workflow=NOBODY, arguments="{}", policy="{}", timing=timing)
        declared = DeclareSchedule(actor=NOBODY, app=world.app.name, name=NOBODY, declaration=declaration)
        (answer,) = await world.store.change_schedules([declared])
        assert isinstance(answer, ScheduleApplied)
        now, rows = world.store.now(), world.store.schedule_rows
        row = replace(rows[world.app.name, NOBODY], declaration=UNKNOWN, next_at=now, look_at=now)
        self._add(rows, (row.app, NOBODY), row)

    def _add_process(self) -> None:
        """An earlier start, which is retired."""
        processes = self._world.store.processes
        if processes:
            row = replace(
                next(iter(processes.values())), process_no=NUMBER, instance=NOBODY, about=UNKNOWN, retired=True
            )
            self._add(processes, NUMBER, row)

    def _add_counts(self) -> None:
        row = CountsRow(app=self._world.app.name, process_no=NUMBER, minute=1, calls=0, counts=UNKNOWN)
        self._add(self._world.store.count_rows, (row.app, NUMBER, 1), row)

    def _add_ledger(self) -> None:
        row = LedgerRow(ledger_no=NUMBER, ledger_id=NOBODY, state=LedgerState.OPENED, digest=UNTYPED)
        self._add(self._world.store.ledgers, NUMBER, row)

    def _add_convoy(self) -> None:
        word: Any = UNKNOWN
        look_at = self._world.store.now()
        self._add(
            self._world.store.convoys, NUMBER, ConvoyRow(convoy_no=NUMBER, key=NOBODY, ordering=word, look_at=look_at)
        )
        self._add(self._world.store.tails, NUMBER, TailRow(convoy_no=NUMBER, key=NOBODY, ordering=word))

    # --- when everything has ended
    async def settle(self) -> list[Violation]:
        """Remove the rows; whether an operator was notified of them once, of nothing else, and of nothing any longer."""
        found = list(self._check_told())
        for table, key in self._added:
            table.pop(key, None)
        store = self._world.store
        await store.look_at_unreadable()
        left = [alert for alert in await store.alerts(limit=1_000) if alert.cause == UNREADABLE]
        return found + [Violation("I26", alert.step, "its row is gone, and its alert is open") for alert in left]

    def _check_told(self) -> Iterator[Violation]:
        alerts = self._world.store.alert_rows.values()
        told = Counter(alert.step for alert in alerts if alert.cause == UNREADABLE and alert.closed_at is None)
        for name, count in told.items():
            if count > 1 or name not in self._names:
                yield Violation("I26", name, f"{count} alerts are open of it")


def draw_bystanders(world: "World", seed: int, *, may_have: bool) -> Bystanders | None:
    """Draw whether a world has such rows. A source of its own leaves worlds without them as they were."""
    random = Random(f"bystanders-{seed}")
    if random.random() >= SHARE or not may_have:
        return None
    world.faults.shared_damage = 1.0
    return Bystanders(world, random)
