"""All rows of the file as the engine asks for them: with those of ledgers, of alerts and of what is purged."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...core.apps import apps_run_by
from ...core.convoys import Gone, NextUnreadable
from ...core.due import HEAD_START
from ...core.lease import PROBATION_FROM
from ...core.placement import build_first_convoy, build_first_tail
from ...errors import UnreadableRow
from ...model import AlertRow, ConvoyRow, Instant, LedgerRow, Loaded, StepRow, TailRow, TaskRow, TaskState
from ...model.commands import Claim, Submit
from ...model.leases import LeaseRow
from ...model.processes import FIRST, ProcessRow, Versions, ask_versions, compute_first_number
from ...model.schedules import ScheduleRow
from ..contract import SUPERVISOR_LEASE, Due, Purge, Renewals
from ..engine.ledgers import refuse_reserved
from ..engine.reading import due_at
from ..readable import of_task, refuse_unreadable_task, without_body
from ..rows import alert_of, convoy_as_is, convoy_of, ledger_of, tail_of
from ..sql.agent_rows import CommandRows
from ..sql.rows import ProcessRows, UpkeepRows
from ..sql.store_rows import StoreRows, SubmissionRows, schedule_as_is
from .columns import parameters_of, step_as_is, step_of, task_as_is, task_of
from .row_cache import READ_AT_ONCE, WaitingCache
from .task_rows import SqliteTaskRows, query, step_range


class SqliteConvoyRows(SqliteTaskRows):
    """Convoys, and who waits in them."""

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self._known.convoys:
            row = self.connection.execute(query("select_convoy"), {"convoy_no": convoy_no}).fetchone()
            if row is None:
                raise Gone
            self._known.convoys[convoy_no] = convoy_of(row)
        return self._known.convoys[convoy_no]

    def put_convoy(self, convoy: ConvoyRow) -> None:
        self._is_written = False
        self._known.convoys[convoy.convoy_no] = self._changed_convoys[convoy.convoy_no] = convoy

    def find_tail(self, key: str) -> TailRow | None:
        if key not in self._known.tails:
            row = self.connection.execute(query("select_tail_by_key"), {"key": key}).fetchone()
            if row is None:
                return None
            self._known.tails[key] = tail_of(row)
        return self._known.tails[key]

    def put_tail(self, tail: TailRow) -> None:
        self._is_written = False
        self._known.tails[tail.key] = self._changed_tails[tail.key] = tail

    def seal(self, convoy_no: int) -> TailRow | None:
        """Find the tail. It needs no lock of its own: nobody else can add while the write lock is ours."""
        return self.find_tail(self.convoy(convoy_no).key)

    def next_convoy_no(self) -> int:
        if self._last_convoy_no is None:
            self._last_convoy_no = self._run("select_next_convoy_no").fetchone()[0] - 1
        self._last_convoy_no += 1
        return self._last_convoy_no

    def read_expected(self, convoy_no: int) -> int:
        return self.convoy(convoy_no).expected

    def convoy_of(self, task: TaskRow) -> ConvoyRow | None:
        """The convoy of a task; None: it is in no convoy."""
        return None if task.convoy_no is None else self.convoy(task.convoy_no)

    def member(self, task_no: int) -> TaskRow | None:
        return self.task(task_no)

    def look_ahead(self, convoy_nos: Iterable[int]) -> None:
        """Read who waits in these convoys while nothing is to be written yet."""
        for convoy_no in convoy_nos:
            if convoy_no not in self._known.waiting:
                # Purged: a late command still names it. Unreadable: the command that needs it reports that.
                with suppress(Gone, UnreadableRow, NextUnreadable):
                    self._read_waiting(convoy_no, (self.convoy(convoy_no).from_rank, 0))

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        line = self._known.waiting.get(convoy_no)
        if line is None or not line.tells(after):
            if not self._is_written:
                self.flush()
            line = self._read_waiting(convoy_no, after)
        first = line.first
        if first is None:
            return None
        self._bodies[first.task.task_no] = first.arguments
        if line.second is not None:
            self._behind[first.task.task_no] = line.second
        return self._keep(first.task)

    def _read_waiting(self, convoy_no: int, after: tuple[int, int]) -> WaitingCache:
        asked = {"convoy_no": convoy_no, "rank": after[0], "place": after[1], "limit": READ_AT_ONCE}
        found = self.connection.execute(query("select_waiting_line"), asked).fetchall()
        read = self._read_in_order(found)
        line = WaitingCache(read, is_cut=len(read) < len(found))
        if after == (
            self.convoy(convoy_no).from_rank,
            0,
        ):  # from its very beginning: true until something changes in it
            self._known.waiting[convoy_no] = line
        return line

    def _read_in_order(self, rows: Sequence[tuple[Any, ...]]) -> list[Loaded]:
        """Up to the first that cannot be read: nobody goes before it. Raises NextUnreadable - that is the first of all."""
        read: list[Loaded] = []
        for row in rows:
            try:
                read.append(refuse_unreadable_task(Loaded(task_as_is(row[:-1]), row[-1], ())))
            except UnreadableRow as error:
                if not read:
                    self._quarantine.add(error)
                    raise NextUnreadable(error) from error
                break
        return read

    def waiting_line(self, convoy_no: int, after: tuple[int, int], limit: int) -> tuple[int, list[Loaded]]:
        self.flush()
        tail = self.seal(convoy_no)
        assert tail is not None
        asked = {"convoy_no": convoy_no, "rank": after[0], "place": after[1], "limit": limit}
        try:
            read = self._read_in_order(self._run("select_waiting_line", asked).fetchall())
        except NextUnreadable:
            return tail.placed, []
        return tail.placed, [replace(one, task=self._keep(one.task)) for one in read]

    def unended_messages(self, batch_no: int, state: TaskState) -> list[TaskRow]:
        rows = self.ask("select_unended_messages", {"batch_no": batch_no, "state": state.stored}).fetchall()
        return [self._keep(task_of(row)) for row in rows]

    def find_following(self, task: TaskRow) -> Loaded | None:
        return self._behind.get(task.task_no)

    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        asked = {"convoy_no": convoy_no, "sequence": sequence}
        row = self._run("select_of_sequence", asked).fetchone()
        return None if row is None else task_as_is(row)

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        asked = {"convoy_no": convoy_no, "start": start, "end": end}
        number: int = self._run("count_sequences", asked).fetchone()[0]
        return number

    def ledger(self, ledger_no: int) -> LedgerRow | None:
        row = self._run("select_ledger", {"ledger_no": ledger_no}).fetchone()
        return None if row is None else ledger_of(row)


T = TypeVar("T")
_json = msgspec.json.encode
_RETIRED = ProcessRow.__struct_fields__.index("retired")


class SqliteDueRows(SqliteConvoyRows, CommandRows):
    """Due rows."""

    def lock_due_convoys(self, limit: int) -> list[ConvoyRow]:
        asked = {"now": self.read_clock(), "limit": limit, "apart": self._quarantine.convoys()}
        rows = self.ask("select_due_convoys", asked).fetchall() + self.ask("select_full_convoys", asked).fetchall()
        found = self._quarantine.readable(convoy_as_is(row) for row in dict.fromkeys(rows))
        self._known.convoys.update({convoy.convoy_no: convoy for convoy in found})
        return found

    def lock_claimable(self, command: Claim, probation: bool, limit: int) -> list[Loaded]:
        asked: dict[str, Any] = {"now": self.read_clock(), "probation_from": PROBATION_FROM, "probation": probation}
        asked |= {"workflows": list(command.workflows), "apps": list(apps_run_by(command.app))}
        asked |= ask_versions(command.versions, command.workflows)
        asked |= {"head_start": HEAD_START, "limit": limit}
        return self._readable("select_claimable", asked, self._claimable)

    def _claimable(self, row: tuple[Any, ...]) -> Loaded:
        """A task with all that is recorded of it. Raises UnreadableRow."""
        task, arguments = self._keep(task_of(row[:-1])), row[-1]
        if not isinstance(arguments, str):
            raise without_body(task.task_no)
        self._bodies[task.task_no] = arguments
        return self.load_locked(task)

    def load_locked(self, task: TaskRow) -> Loaded:
        try:
            steps = self.steps_of(task.task_no) if task.opened_count else ()
            return Loaded(task, self.arguments(task.task_no), steps, self.convoy_of(task))
        except UnreadableRow as error:
            raise of_task(error, task.task_no) from error

    def lock_requests(self, name: str, asked: dict[str, Any], limit: int) -> list[StepRow]:
        asked |= {"now": self.read_clock(), "probation_from": PROBATION_FROM, "limit": limit}
        return self._readable(name, asked, self._takeable)

    def _takeable(self, row: tuple[Any, ...]) -> StepRow:
        """A request; its task is read, too. Raises UnreadableRow."""
        step = step_of(row)
        self.task(step.task_no)
        return step

    def _readable(self, name: str, asked: dict[str, Any], read: Callable[[tuple[Any, ...]], T]) -> list[T]:
        """See ``Quarantine.read_due``."""

        def ask() -> list[tuple[Any, ...]]:
            return self.ask(name, asked | {"apart": self._quarantine.tasks()}).fetchall()

        return self._quarantine.read_due(ask, read)

    def select_due(self, workflows: Sequence[str], agents: Sequence[str], app: str, versions: Versions) -> Due:
        """See ``StateStore.due``."""
        now = self.read_clock()
        asked: dict[str, Any] = {"now": now, "workflows": list(workflows), "agents": list(agents)}
        asked |= ask_versions(versions, workflows)
        asked |= {
            "apps": list(apps_run_by(app)),
            "apart": self._quarantine.tasks(),
            "apart_convoys": self._quarantine.convoys(),
        }
        *times, is_leaderless = self.ask("select_due", {**asked, "lease": SUPERVISOR_LEASE}).fetchone()
        tasks, undos, steps, *nexts, look_at = (Instant(at) if isinstance(at, int) else None for at in times)
        return due_at(now, (tasks, undos, look_at), (steps,), (*nexts, look_at), is_leaderless=bool(is_leaderless))

    def select_news(self, process_no: int) -> list[tuple[int, int]]:
        """See ``StateStore.load_news``."""
        found = self.ask("select_news", {"process_no": process_no, "apart": self._quarantine.tasks()}).fetchall()
        if again := self._quarantine.to_be_tried():
            held = self.ask("select_news_again", {"process_no": process_no, "task_nos": again}).fetchall()
            self._quarantine.forget_untried(set(again).difference(row[0] for row in held))  # others hold them now
            found += held
        return found


class SqliteProcessRows(SqliteTaskRows, ProcessRows):
    """Processes, leases and epochs. While this transaction has the write lock nobody else registers, renews or retires."""

    def process_is_retired(self, process_no: int) -> bool:
        if process_no not in self._retired:
            row = self.connection.execute(query("select_process"), {"process_no": process_no}).fetchone()
            # None: there is no such process. One whose row was removed had a number below that of another.
            self._retired[process_no] = self._was_removed(process_no) if row is None else bool(row[_RETIRED])
        return self._retired[process_no] is not False

    def _was_removed(self, process_no: int) -> bool | None:
        return True if self._run("select_later_process", {"process_no": process_no}).fetchone() else None

    def process_was_retired(self, process_no: int) -> bool:
        return self.process_is_retired(process_no) and self._retired[process_no] is not None

    def lock_process(self, process_no: int) -> ProcessRow | None:
        row = self._run("select_process", {"process_no": process_no}).fetchone()
        return None if row is None else self.read_shared(ProcessRow, [row])[0]

    def retire_process(self, process_no: int, now: Instant) -> None:
        self._retired.clear()
        super().retire_process(process_no, now)

    def add_process(self, instance: str, lease_until: Instant, about: str) -> tuple[int, int]:
        asked = {"instance": instance, "lease_until": lease_until, "about": about}
        number = self._run("insert_process", asked).lastrowid
        assert number is not None
        return number, self.read_epoch()

    def select_renewals(self, process_no: int) -> Renewals:
        last = self.meta("renewed_at")
        rows = self._run("select_other_processes", {"process_no": process_no}).fetchall()
        return Renewals(
            None if last is None else Instant(int(last)),
            Instant(int(self.meta("nobody_frees_until") or 0)),
            tuple(self.read_shared(ProcessRow, rows)),
        )

    def renew_process(self, process_no: int, lease_until: Instant, now: Instant, room: str) -> bool:
        self.put_meta("renewed_at", now)
        self.put_meta("clock_seen", now)
        asked = {"process_no": process_no, "lease_until": lease_until, "room": room}
        return self._run("renew_process", asked).rowcount == 1

    def read_epoch(self) -> int:
        """The store's life: the first, or that since it was restored last."""
        if self._known.epoch is None:
            self._known.epoch = int(self.meta("epoch") or FIRST)
        return self._known.epoch

    def open_epoch(self) -> int:
        epoch = self.read_epoch() + 1
        first = compute_first_number(epoch)
        self.put_meta("epoch", epoch)
        self._known.epoch = epoch
        self.put_meta("last_task_no", max(self.next_task_no(), first) - 1)
        self._run("retire_all_processes")
        self._run("delete_secrets")
        self._run("leave_out_processes", {"process_no": first - 1, "instance": f"epoch-{epoch}"})
        return epoch

    # --- leases
    def lock_lease(self, name: str, *, to_grant: bool = False) -> LeaseRow | None:
        return self.select_lease(name)

    def add_lease(self, name: str) -> None:
        self.put_lease(LeaseRow(name, 0, None, Instant(0)))

    def term(self, lease: str) -> int:
        row = self.select_lease(lease)
        return 0 if row is None else row.term

    read_term = term


class SqliteLedgerRows(SqliteDueRows, SubmissionRows, UpkeepRows):
    """Ledgers, new tasks, and what is purged."""

    def add_ledger(self, ledger_id: str) -> LedgerRow:
        known = self.select_ledger(ledger_id)
        if known is None:
            self._run("insert_ledger", {"ledger_id": ledger_id, "now": self.read_clock()})
            known = self.select_ledger(ledger_id)
            assert known is not None
        return known

    def find_known(self, command: Submit) -> TaskRow | None:
        return self.task_by_id(command.task_id)

    def find_numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        return None if command.sequence is None else self.find_by_sequence(convoy_no, command.sequence)

    def put_ledger(self, ledger: LedgerRow) -> None:
        self._run("update_ledger", parameters_of(ledger))

    def add_aside(self, ledger_no: int, line: int, reason: str) -> None:
        self._run("insert_ledger_aside", {"ledger_no": ledger_no, "line": line, "reason": reason})

    def select_of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        asked = {"ledger_no": ledger.ledger_no, "after": ledger.reached, "limit": limit}
        return [task_as_is(row) for row in self._run("select_of_ledger", asked).fetchall()]

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        self.put_meta("last_task_no", self.next_task_no() - 1)
        super().remove_kept(tasks)

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        tail = build_first_tail(self.next_convoy_no(), command)
        self.put_convoy(build_first_convoy(tail, now))
        self.put_tail(tail)
        return tail

    def order(self, tail: TailRow) -> None:
        self.put_tail(tail)

    def tail(self, convoy_no: int) -> TailRow:
        tail = self.seal(convoy_no)
        assert tail is not None
        return tail

    # --- purging
    def select_tail(self, key: str) -> TailRow | None:
        return self.find_tail(key)

    purge_tail = select_tail

    def purge_ledger(self, ledger_id: str) -> LedgerRow | None:
        return self.select_ledger(ledger_id)

    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        return [task for number in sorted(task_nos) if (task := self.task(number)) is not None]

    def read_expected_unlocked(self, convoy_no: int) -> int:
        return self.convoy(convoy_no).expected

    def select_purgeable(
        self, which: Purge, limit: int, after: int = 0, of: list[int] | None = None
    ) -> list[tuple[int, int, str]]:
        """Tasks that may be purged, each by number, link and head. ``of``: only these; None: any."""
        asked = {"states": [state.stored for state in which.states], "ended_before": which.ended_before, "task_nos": of}
        return self.ask("select_purgeable", {**asked, "limit": limit, "after": after}).fetchall()

    def remove_tasks(self, task_nos: Sequence[int]) -> None:
        self.put_meta("last_task_no", self.next_task_no() - 1)  # their numbers are not given again
        super().remove_tasks(task_nos)

    def remove_convoy(self, convoy_no: int) -> None:
        self.put_meta("last_convoy_no", self.next_convoy_no() - 1)
        super().remove_convoy(convoy_no)


class SqliteRows(SqliteLedgerRows, SqliteProcessRows, StoreRows):
    """All rows of one transaction on SQLite."""

    def lock_schedules(self, keys: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        found = (self._run("lock_schedules", {"app": app, "name": name}).fetchone() for app, name in sorted(keys))
        return [schedule_as_is(row) for row in found if row is not None]

    def select_number(self, task_id: str) -> int | None:
        task = self.task_by_id(task_id)
        return None if task is None or refuse_reserved(task, self.ledger) else task.task_no

    def select_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        found = (self._as_it_stands(task_no) for task_no in task_nos)
        return [loaded for loaded in found if loaded is not None]

    def _as_it_stands(self, task_no: int) -> Loaded | None:
        row = self._run("select_task", {"task_no": task_no}).fetchone()
        if row is None:
            return None
        task = task_as_is(row)
        body = self._run("select_body", {"task_no": task_no}).fetchone()
        steps = self._run("select_steps", step_range(task_no)).fetchall()
        arguments: Any = None if body is None else body[0]
        convoy = None
        if task.convoy_no is not None:
            convoy = self._run("select_convoy", {"convoy_no": task.convoy_no}).fetchone()
        return Loaded(
            task,
            arguments,
            tuple(map(step_as_is, steps)),
            None if convoy is None else convoy_as_is(convoy),
            tuple(self.select_inboxes((task_no,))) if task.inbox else (),
        )

    # --- statuses and alerts

    def hold_alerts(self, now: Instant, next_at: Instant, limit: int) -> list[AlertRow]:
        due = list(map(alert_of, self._run("select_due_alerts", {"now": now, "limit": limit}).fetchall()))
        for alert in due:
            self._run("hold_alert", {"no": alert.no, "next_at": next_at})
        return [replace(alert, attempts=alert.attempts + 1, next_at=next_at) for alert in due]
