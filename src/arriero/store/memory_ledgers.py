"""Ledgers in dicts."""

from collections.abc import Sequence

from ..commands import Submit
from ..core.ledgers import ASIDE_MAX, LedgerBatch, LedgerOpened, LedgerWritten
from ..core.placing import first_convoy, first_tail
from ..model import Instant, LedgerRow, LedgerState, TailRow, TaskRow
from . import ledgers
from .memory_tables import MemoryTables


class MemoryLedgers(MemoryTables):
    """The memory store's part of ``store.ledger_contract.LedgerStore``."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers: dict[int, LedgerRow] = {}
        self.aside: dict[tuple[int, int], str] = {}

    def now(self) -> Instant:
        raise NotImplementedError

    # --- rows
    def ledger(self, ledger_no: int) -> LedgerRow | None:
        return self.ledgers.get(ledger_no)

    def put_ledger(self, ledger: LedgerRow) -> None:
        self._put(self.ledgers, ledger.ledger_no, ledger)

    def add_aside(self, ledger_no: int, line: int, reason: str) -> None:
        self._put(self.aside, (ledger_no, line), reason)

    def of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        found = (t for t in self.tasks.values() if t.ledger_no == ledger.ledger_no and t.task_no > ledger.reached)
        return sorted(found, key=lambda task: task.task_no)[:limit]

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        for task in tasks:
            self._remove(self.tasks, task.task_no)
            self._remove(self.bodies, task.task_no)
            self._remove(self.numbers, task.task_id)

    def remove_ledger(self, ledger_no: int) -> None:
        self._remove(self.ledgers, ledger_no)
        for key in [key for key in self.aside if key[0] == ledger_no]:
            self._remove(self.aside, key)

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        tail = first_tail(self.next_convoy_no(), command)
        self.put_convoy(first_convoy(tail, now))
        self.put_tail(tail)
        return tail

    def order(self, tail: TailRow) -> None:
        self.put_tail(tail)

    def keeps_some_in(self, convoy_no: int) -> bool:
        return any(task.ledger_no is not None and task.convoy_no == convoy_no for task in self.tasks.values())

    def is_hidden(self, task: TaskRow) -> bool:
        """Whether it belongs to a ledger that is not opened."""
        return task.ledger_no is not None and not self.ledgers[task.ledger_no].is_open

    def known(self, command: Submit) -> TaskRow | None:
        number = self.numbers.get(command.task_id)
        return None if number is None else self.tasks[number]

    def numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        return None if command.sequence is None else self.of_sequence(convoy_no, command.sequence)

    def next_task_no(self) -> int:
        return self.next_number("task")

    def add_task(self, task: TaskRow, arguments: str) -> None:
        self._put(self.numbers, task.task_id, task.task_no)
        self._put(self.bodies, task.task_no, arguments)
        self._put(self.tasks, task.task_no, task)

    def tail(self, convoy_no: int) -> TailRow:
        return self.tails[convoy_no]

    # --- transactions
    async def begin_ledger(self, ledger_id: str) -> LedgerRow:
        return await self.find_ledger(ledger_id) or self._transact(lambda: self._begin(ledger_id))

    def _begin(self, ledger_id: str) -> LedgerRow:
        now = self.now()
        number = self.next_number("ledger")
        ledger = LedgerRow(ledger_no=number, ledger_id=ledger_id, created_at=now, written_at=now)
        self.put_ledger(ledger)
        return ledger

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        return self._transact(lambda: ledgers.write(batch, self, self.now()))

    async def open_ledger(self, ledger_no: int, written: int, digest: str, actor: str) -> LedgerOpened:
        return self._transact(lambda: ledgers.open_it(ledger_no, written, digest, actor, self, self.now()))

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        return self._transact(lambda: ledgers.let_go(ledger_no, limit, actor, self, self.now()))

    async def discard_ledger(self, ledger_no: int, limit: int, actor: str, reason: str) -> LedgerRow | None:
        return self._transact(lambda: ledgers.discard(ledger_no, limit, actor, reason, self, self.now()))

    # --- reading
    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        return next((ledger for ledger in self.ledgers.values() if ledger.ledger_id == ledger_id), None)

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        found = (ledger for ledger in self.ledgers.values() if ledger.ledger_no > after and ledger.state in states)
        return sorted(found, key=lambda ledger: ledger.ledger_no)[:limit]

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        found = sorted((line, reason) for (number, line), reason in self.aside.items() if number == ledger_no)
        return [one for one in found if one[0] > after][:limit]
