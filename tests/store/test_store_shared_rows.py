"""One shared row that this release cannot read costs what needs it, and nothing else: in every store, in every column."""

import itertools
from typing import Any, get_args

import msgspec
import pytest
from core_schedules import fire_command
from damaging import Damage
from store_world import LEASE, NOON, TASK_POLICY, TestClock, World, step, submission

from arriero.core.agent_metrics import AgentCounts, encode_counts, find_minute
from arriero.core.ledger_batches import LedgerBatch, LedgerEntry
from arriero.errors import UnreadableRow
from arriero.inspection.facts import CountsRow
from arriero.model import MICROSECONDS, ConvoyRow, Instant, LedgerRow, LedgerState, TailRow
from arriero.model.agents import (
    AgentLimitsRow,
    AgentVerb,
    BreakerRow,
    BreakerState,
    LimitPolicy,
    RateRow,
    encode_limit_keys,
    encode_limits,
)
from arriero.model.answers import BreakerApplied, Refusal, Submitted
from arriero.model.commands import OperateAgent
from arriero.model.leases import LeaseRow
from arriero.model.moves import Process
from arriero.model.processes import ProcessAbout, ProcessRow
from arriero.model.schedules import DeclareSchedule, ScheduleApplied, ScheduleDeclaration, ScheduleRow, Timing
from arriero.model.tokens import NewToken, TokenRow
from arriero.model.workflow_pauses import OperateWorkflow, PauseState, WorkflowPauseRow
from arriero.store.memory import MemoryStore
from arriero.store.quarantine import UNREADABLE
from arriero.store.readable import KEYS, TABLES, columns_of, name_row
from arriero.store.rows import SharedRow
from arriero.store.sqlite.store import SqliteStore

NONSENSE = "nonsense"
RATE = LimitPolicy(name="calls", kind="rate", most=1, per=60.0, is_keyed=True)
HOURLY = Timing(every=3_600 * MICROSECONDS)
UNIQUE: dict[type, tuple[str, ...]] = {  # texts that name the row: with another one it is another's
    ConvoyRow: ("key",),
    TailRow: ("key",),
    LedgerRow: ("ledger_id",),
    ProcessRow: ("instance",),
}
KINDS: tuple[type, ...] = get_args(SharedRow)


class Furnished:
    """A store with a row of each kind that is going to be damaged, and with others beside it."""

    def __init__(self, world: World) -> None:
        self.world, self.store = world, world.store
        self.keys: dict[type, tuple[Any, ...]] = {}
        self._numbers = itertools.count()

    async def furnish(self) -> None:
        store = self.store
        steps = (("payments", "charge"), ("mails", "send"))
        about = ProcessAbout(app="shop", steps=steps, limits={"payments": encode_limits((RATE,))})
        self.worker = await store.register("worker", LEASE, msgspec.json.encode(about).decode())
        lost = self.lost = await store.register("lost", 1_000_000.0)
        self.term = await self.world.lead(self.worker)
        await store.acquire_lease("victim", "host-1", "host-1", 60.0)
        await store.add_token(self._token("victim"))
        minute = find_minute(store.now())
        await store.put_agent_counts([self._counted(lost, minute)])
        await self._open_breaker("victim")
        await self._take_key("victim")
        await store.submit([submission("v0", convoy="victim", app="shop")])
        convoy = await store.find_convoy("victim")
        assert convoy is not None
        ledger = await store.begin_ledger("victim")
        entry = LedgerEntry(line=1, digest="d1", submit=submission("of-ledger", app="shop"))
        await store.write_ledger(LedgerBatch(ledger_no=ledger.ledger_no, after=0, entries=(entry,), refuses=False))
        await store.open_ledger(ledger.ledger_no, 1, "d1", "client")
        await store.let_go(ledger.ledger_no, 10, "upkeep")
        for name in ("victim", "other"):
            declaration = ScheduleDeclaration(workflow="fulfil", arguments="{}", policy=TASK_POLICY, timing=HOURLY)
            await store.change_schedules([DeclareSchedule(actor="p", app="shop", name=name, declaration=declaration)])
        await store.change_workflow_pause(
            OperateWorkflow(
                actor="cli", app="shop", workflow="victim", state=PauseState.PAUSED, by="ana", reason="test"
            )
        )
        self.keys = {
            WorkflowPauseRow: ("shop", "victim"),
            ConvoyRow: (convoy.convoy.convoy_no,),
            TailRow: (convoy.convoy.convoy_no,),
            LedgerRow: (ledger.ledger_no,),
            ProcessRow: (lost,),
            BreakerRow: ("shop", "payments", "victim"),
            AgentLimitsRow: ("shop", "payments"),
            RateRow: ("shop", "payments", "calls", "victim"),
            LeaseRow: ("victim",),
            TokenRow: ("victim",),
            CountsRow: ("shop", lost, minute),
            ScheduleRow: ("shop", "victim"),
        }

    async def restore(self, kind: type) -> tuple[Any, ...]:
        """The key of the row that is to be damaged; it is there again where upkeep has removed it."""
        if kind is CountsRow:
            minute = find_minute(self.store.now())
            await self.store.put_agent_counts([self._counted(self.lost, minute)])
            return ("shop", self.lost, minute)
        if kind is RateRow:
            self.world.clock.move(61)
            assert await self._take_key("victim")
        return self.keys[kind]

    @staticmethod
    def _token(token_id: str) -> NewToken:
        return NewToken(
            token_id=token_id, name="deploy", digest="d" * 64, scopes=("read",), created_by="ana", expires_in=None
        )

    @staticmethod
    def _counted(process_no: int, minute: int) -> CountsRow:
        text = encode_counts({"mails": AgentCounts(outcomes={"succeeded": 1})})
        return CountsRow(app="shop", process_no=process_no, minute=minute, calls=1, counts=text)

    async def _open_breaker(self, target: str) -> None:
        command = OperateAgent(
            actor="cli", app="shop", agent="payments", target=target, by="ana", reason="test", verb=AgentVerb.OPEN
        )
        assert isinstance(await self.world.apply(command), BreakerApplied)

    async def _take_key(self, key: str) -> bool:
        """A request of the limited Agent under a key of its own; answers whether it began."""
        new = step("charge", limit_keys=encode_limit_keys({"calls": key}))
        return await self._take(f"key-{key}-{next(self._numbers)}", "payments", new)

    async def _take(self, task_id: str, agent: str, new: Any) -> bool:
        await self.world.submit(task_id, app="shop")
        held = next(one.task for one in await self._claim() if one.task.task_id == task_id)
        task, (opened,) = await self.world.opened(held, new)
        taken = await self.world.take(self.worker, room=((agent, 100),), names=("charge", "send"), app="shop")
        began = [one for one in taken if one.step.step_no == opened.step_no]
        if began:
            answer = await self.world.advance(task, [self.world.reported(began[0].step)], ending=Process('"done"'))
            assert answer.task.ended_at is not None
        return bool(began)

    async def _claim(self) -> list[Any]:
        return await self.world.claim(self.worker, app="shop")

    async def go_on(self, damaged: type) -> None:
        """Everything that does not need the damaged row goes on."""
        name, store, clock = f"r{next(self._numbers)}", self.store, self.world.clock
        mail = step("send", agent="mails")
        assert await self._take(f"mail-{name}", "mails", mail)
        if damaged is not AgentLimitsRow:
            assert await self._take_key(name)
        answers = await store.submit(
            [
                submission(f"c-{name}", convoy=f"c-{name}", app="shop"),
                submission(f"v-{name}", convoy="victim", app="shop"),
            ]
        )
        assert isinstance(answers[0], Submitted)
        assert isinstance(answers[1], Submitted | UnreadableRow | Refusal)
        assert f"c-{name}" in [loaded.task.task_id for loaded in await self._claim()]
        await self._fire_other()
        assert (await store.acquire_lease(f"l-{name}", "host-2", "host-2", 60.0)).holder == "host-2"
        assert await store.find_tokens([(await store.add_token(self._token(f"t-{name}"))).token_id])
        assert await store.register(f"p-{name}", LEASE)
        assert (await store.renew(self.worker, LEASE)).renewed
        await store.put_agent_counts([self._counted(self.worker, find_minute(clock()))])
        await self.keep_up()
        await self.list_all(damaged)

    async def _fire_other(self) -> None:
        row = await self.store.find_schedule("shop", "other")
        assert row is not None
        assert row.next_at is not None
        self.world.clock.to(max(row.next_at, self.world.clock()))
        fire = fire_command(row, self.world.clock(), self.term)
        (answer,) = await self.store.change_schedules([fire])
        assert isinstance(answer, ScheduleApplied), answer

    async def keep_up(self) -> None:
        """The duties of the leader."""
        store = self.store
        await store.close_recovered_breakers("upkeep")
        await store.remove_old_rates()
        await store.fold_agent_counts()
        await store.look_at_forgotten()
        await store.drop_statuses(Instant(NOON), 10)
        for ledger in await store.list_ledgers((LedgerState.OPENED, LedgerState.DISCARDING)):
            try:
                await store.let_go(ledger.ledger_no, 10, "upkeep")
            except UnreadableRow:
                continue
        await store.load_overdue(10, 5.0, 60.0)

    async def list_all(self, damaged: type) -> None:
        """What people look at."""
        store = self.store
        assert await store.list_breakers()
        assert await store.list_limits()
        assert (await store.list_leases())[1]
        assert await store.list_tokens()
        assert await store.list_ledgers()
        assert await store.list_convoys()
        assert await store.list_workflow_pauses()
        assert (await store.known_processes())[1]
        assert (await store.measure_agents()).counts
        assert await store.list_tasks()
        await store.find_convoy("victim")
        await store.survey()
        await store.survey_leader()
        await store.survey_attempts()
        await store.measure_backlog()
        if damaged is not ScheduleRow:
            assert await store.list_schedules()


def damageable(world: World, kind: type) -> list[str]:
    """Columns beside the key that can hold nonsense: on SQLite any, elsewhere texts."""
    names = (*KEYS[kind], *UNIQUE.get(kind, ()))
    columns = [column for column in columns_of(kind) if column.name not in names]
    if isinstance(world.store, SqliteStore):
        return [column.name for column in columns]
    return [column.name for column in columns if any(issubclass(each, str | tuple) for each in column.types)]


def value_for(kind: type, column: str) -> str:
    return "[3]" if (kind, column) == (TokenRow, "scopes") else NONSENSE


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not ScheduleRow], ids=lambda kind: TABLES[kind])
async def test_a_shared_row_that_cannot_be_read_keeps_nothing_else_waiting(world: World, kind: type) -> None:
    furnished = Furnished(world)
    await furnished.furnish()
    for column in damageable(world, kind):
        if (kind, column) == (LeaseRow, "holder") and not isinstance(world.store, MemoryStore):
            continue  # the column is a number there, and the row's holder a text
        key = await furnished.restore(kind)
        damage = Damage(world.store, TABLES[kind], key, column, value_for(kind, column))
        await furnished.go_on(kind)
        damage.mend()


# --- what needs it
async def furnished(world: World) -> Furnished:
    made = Furnished(world)
    await made.furnish()
    return made


async def told(world: World) -> list[tuple[str, str]]:
    return [(one.step, one.code) for one in await world.store.alerts(limit=100) if one.cause == UNREADABLE]


async def test_a_row_is_told_once_and_its_alert_is_closed_when_it_can_be_read(world: World) -> None:
    made = await furnished(world)
    name = 'breaker ["shop","payments","victim"]'
    for _ in range(2):
        damage = Damage(world.store, "breaker", made.keys[BreakerRow], "state", NONSENSE)
        for n in range(2):
            await world.take(made.worker, room=(("payments", 100),), names=("charge",), app="shop")
            assert await told(world) == [(name, "breaker.state")], n
        assert await world.store.look_at_unreadable() == 0
        assert [error.row for error in await world.store.list_unreadable(10)] == [name]
        damage.mend()
        assert await world.store.look_at_unreadable() == 1
        assert await told(world) == []
        assert await world.store.list_unreadable(10) == []


async def test_the_alert_of_a_row_that_was_removed_is_closed(world: World, clock: TestClock) -> None:
    made = await furnished(world)
    Damage(world.store, "rate", made.keys[RateRow], "begun", NONSENSE)
    assert not await made._take_key("victim")
    assert [code for _, code in await told(world)] == ["rate.begun"]
    clock.move(61)
    await world.store.remove_old_rates()
    assert await world.store.look_at_unreadable() == 1
    assert await told(world) == []


async def test_a_key_whose_calls_cannot_be_read_has_no_room_until_they_no_longer_count(
    world: World, clock: TestClock
) -> None:
    made = await furnished(world)
    clock.move(30)
    Damage(world.store, "rate", made.keys[RateRow], "begun", NONSENSE)
    await world.submit("again", app="shop")
    task = next(one.task for one in await made._claim() if one.task.task_id == "again")
    await world.opened(task, step("charge", limit_keys=encode_limit_keys({"calls": "victim"})))
    asked: dict[str, Any] = {"room": (("payments", 100),), "names": ("charge",), "app": "shop"}
    assert await world.take(made.worker, **asked) == []
    clock.move(31)
    assert [one.task_id for one in await world.take(made.worker, **asked)] == ["again"]


async def test_limits_that_cannot_be_read_have_no_room_until_a_process_declares_them(world: World) -> None:
    made = await furnished(world)
    Damage(world.store, "agent_limits", made.keys[AgentLimitsRow], "limits", NONSENSE)
    assert not await made._take_key("other")
    assert [code for _, code in await told(world)] == ["agent_limits.limits"]
    about = ProcessAbout(app="shop", steps=(("payments", "charge"),), limits={"payments": encode_limits((RATE,))})
    await world.store.register("newer", LEASE, msgspec.json.encode(about).decode())
    taken = await world.take(made.worker, room=(("payments", 100),), names=("charge",), app="shop")
    assert [one.task_id.startswith("key-other") for one in taken] == [True]
    await world.store.look_at_unreadable()
    assert await told(world) == []


async def test_a_breaker_that_cannot_be_read_is_open_until_a_person_closes_it(world: World) -> None:
    made = await furnished(world)
    Damage(world.store, "breaker", made.keys[BreakerRow], "policy", NONSENSE)
    new = step("charge", target="victim", limit_keys=encode_limit_keys({"calls": "a"}))
    assert not await made._take("t0", "payments", new)
    row = next(one for one in await world.store.list_breakers() if one.target == "victim")
    assert (row.state, row.probe_at) == (BreakerState.OPEN, None)
    assert row.reason.startswith("its row cannot be read: column policy of table breaker")
    pause = OperateAgent(
        actor="c", app="shop", agent="payments", target="victim", by="ana", reason="t", verb=AgentVerb.PAUSE
    )
    answer = await world.apply(pause)
    assert isinstance(answer, Refusal)
    assert "its row cannot be read" in answer.detail
    closed = await world.apply(msgspec.structs.replace(pause, verb=AgentVerb.CLOSE))
    assert isinstance(closed, BreakerApplied)
    taken = await world.take(made.worker, room=(("payments", 100),), names=("charge",), app="shop")
    assert [one.task_id for one in taken] == ["t0"]
    assert await world.store.look_at_unreadable() == 1


async def test_a_closed_breaker_whose_policy_cannot_be_read_lets_requests_through(world: World) -> None:
    made = await furnished(world)
    close = OperateAgent(
        actor="c", app="shop", agent="payments", target="victim", by="ana", reason="t", verb=AgentVerb.CLOSE
    )
    await world.apply(close)
    damage = Damage(world.store, "breaker", made.keys[BreakerRow], "policy", NONSENSE)
    new = step("charge", target="victim", limit_keys=encode_limit_keys({"calls": "a"}))
    assert await made._take("t0", "payments", new)
    damage.mend()


async def test_a_submission_to_a_convoy_that_cannot_be_read_is_refused_by_name_and_others_are_kept(
    world: World,
) -> None:
    made = await furnished(world)
    damage = Damage(world.store, "convoy_tail", made.keys[TailRow], "ordering", NONSENSE)
    batch = [submission("a"), submission("b", convoy="victim"), submission("c", convoy="free")]
    answers = await world.store.submit(batch)
    assert [type(answer) for answer in answers] == [Submitted, UnreadableRow, Submitted]
    assert "column ordering of table convoy_tail" in str(answers[1])
    assert await told(world) == [("convoy_tail [1]", "convoy_tail.ordering")]
    damage.mend()
    (again,) = await world.store.submit(batch[1:2])
    assert isinstance(again, Submitted)


async def test_a_run_for_a_convoy_that_cannot_be_read_is_refused_and_other_schedules_go_on(world: World) -> None:
    made = await furnished(world)
    damage = Damage(world.store, "convoy_tail", made.keys[TailRow], "ordering", NONSENSE)
    victim, other = [await world.store.find_schedule("shop", name) for name in ("victim", "other")]
    assert victim is not None
    assert other is not None
    assert victim.next_at is not None
    world.clock.to(victim.next_at)

    spoiled, right = [fire_command(row, victim.next_at, made.term) for row in (victim, other)]
    runs = tuple(msgspec.structs.replace(run, convoy="victim") for run in spoiled.submits)
    spoiled = msgspec.structs.replace(spoiled, submits=runs)
    first, second = await world.store.change_schedules([spoiled, right])
    assert isinstance(first, ScheduleApplied)
    assert isinstance(first.submitted[0], Refusal)
    assert first.submitted[0].verdict == "unreadable"
    assert isinstance(second, ScheduleApplied)
    assert isinstance(second.submitted[0], Submitted)
    damage.mend()


async def test_a_mutex_that_cannot_be_read_is_granted_to_nobody_until_a_person_breaks_it(world: World) -> None:
    made = await furnished(world)
    if not isinstance(world.store, SqliteStore):
        return  # its columns that decide are numbers, which no other store keeps a text in
    Damage(world.store, "lease", made.keys[LeaseRow], "until", NONSENSE)
    world.clock.move(3_600)
    row = await world.store.acquire_lease("victim", "host-2", "host-2", 60.0)
    assert row.holder != "host-2"
    assert await told(world) == [('lease ["victim"]', "lease.until")]
    await world.store.break_lease("victim", "ana", "host-1 is gone", at_once=True)
    assert (await world.store.acquire_lease("victim", "host-2", "host-2", 60.0)).term == 2


async def test_a_lease_whose_term_cannot_be_read_is_granted_under_a_term_above_all_before(world: World) -> None:
    made = await furnished(world)
    if not isinstance(world.store, SqliteStore):
        return
    Damage(world.store, "lease", ("supervisor",), "term", NONSENSE)
    granted = await world.store.acquire_lease("supervisor", made.worker, "leader", 60.0)
    assert granted.term > made.term
    assert granted.holder == made.worker


async def test_a_token_that_cannot_be_read_is_refused(world: World) -> None:
    made = await furnished(world)
    damage = Damage(world.store, "token", made.keys[TokenRow], "scopes", "[3]")
    (row,) = await world.store.find_tokens(["victim"])
    assert row.revoked_at is not None
    assert "column scopes of table token" in row.revoked_reason
    damage.mend()
    (row,) = await world.store.find_tokens(["victim"])
    assert (row.scopes, row.revoked_at) == (("read",), None)


async def test_a_request_whose_limit_keys_cannot_be_read_keeps_no_other_of_its_agent_waiting(world: World) -> None:
    made = await furnished(world)
    await world.submit("bad", app="shop")
    task = next(one.task for one in await made._claim() if one.task.task_id == "bad")
    _, (opened,) = await world.opened(task, step("charge", limit_keys=encode_limit_keys({"calls": "a"})))
    damage = Damage(world.store, "step", opened.step_no, "limit_keys", NONSENSE)
    world.keys_are_damaged = True
    assert await world.store.repair_waiting_keys() == 1  # no Take looks for keys that no request had
    assert await made._take_key("other")
    assert [alert.task_id for alert in await world.store.alerts() if alert.cause == UNREADABLE] == ["bad"]
    damage.mend()


def test_the_name_of_a_row_tells_its_table_and_key() -> None:
    row = BreakerRow(app="shop", agent="payments", target='a "b"')
    assert name_row(row) == 'breaker ["shop","payments","a \\"b\\""]'
