"""Rows inside one transaction: what the engine asks a store for, family by family.

``Table`` is what each store does in its own way. Everything else has one implementation here, over statements that have the
same name and the same meaning on both databases. The memory store is a reference without SQL: it overrides each of these methods.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from ...core.parents import ParentStep
from ...model import (
    AlertRow,
    Instant,
    LedgerRow,
    Loaded,
    StatusRow,
    StepRow,
    TailRow,
    TaskRow,
    step_number,
)
from ...model.commands import Submit
from ...model.leases import LeaseRow
from ...model.processes import ProcessRow, Versions
from ..contract import Due, PastDeadline, Renewals
from ..quarantine import Quarantine, S
from ..readable import KEYS, TABLES
from ..rows import Row, lease_as_is, ledger_of, parent_step_of, shared_as_is, status_of
from .table import Table

_OF_LEASES = ("name", "term", "holder", "until", "owner", "duration", "since", "broken_by", "broken_reason")


class StatementAnswer(Protocol):
    """The answer to a statement."""

    def fetchone(self) -> Row | None: ...
    def fetchall(self) -> list[Row]: ...

    @property
    def rowcount(self) -> int: ...


class SqlRows(Table):
    """Statements inside one transaction. Lists are parameters as they are; each database sends them in its own way."""

    _quarantine: Quarantine
    task_as_is: Callable[[Row], TaskRow]
    step_as_is: Callable[[Row], StepRow]

    def ask(self, name: str, parameters: Mapping[str, Any] | None = None, /) -> StatementAnswer:
        """Execute the statement of that name. On PostgreSQL the answer may come later, at the latest when it is read."""
        raise NotImplementedError

    def ask_plain(self, sql: str, parameters: Mapping[str, Any]) -> StatementAnswer:
        """Execute a statement that is made of others."""
        raise NotImplementedError

    def ask_of_agents(self, name: str, parameters: Mapping[str, Any]) -> StatementAnswer:
        """Ask about breakers or limits. What this transaction has still to write says nothing of them."""
        return self.ask(name, parameters)

    def arrive(self) -> None:
        """Wait for the answers to all that was asked."""
        raise NotImplementedError

    def read_clock(self) -> Instant:
        """See ``Table``."""
        raise NotImplementedError

    def read_shared(self, kind: type[S], rows: Sequence[Row]) -> list[S]:
        """Rows of one kind, each one or what stands in for it; see ``Quarantine.read_shared``."""
        as_is: Callable[[Row], S] = lease_as_is if kind is LeaseRow else partial(shared_as_is, kind)  # type: ignore[assignment]
        return [self._quarantine.read_shared(as_is(row)) for row in rows]

    def select_shared(self, kind: type[S], key: Sequence[Any] | None, limit: int) -> list[S]:
        """Rows of one kind as they stand. ``key``: only of this one; None: any."""
        columns = _OF_LEASES if kind is LeaseRow else kind.__struct_fields__
        found = self.ask_shared(TABLES[kind], columns, dict(zip(KEYS[kind], key or (), strict=key is not None)), limit)
        return [lease_as_is(row) if kind is LeaseRow else shared_as_is(kind, row) for row in found.fetchall()]  # type: ignore[misc]

    def ask_shared(self, table: str, columns: Sequence[str], key: Mapping[str, Any], limit: int) -> StatementAnswer:
        """Ask for rows of a table. ``key``: values by their columns; empty: any row."""
        raise NotImplementedError

    def _first_column(self, name: str, **parameters: Any) -> list[int]:
        """The first column of all rows."""
        return [row[0] for row in self.ask(name, parameters).fetchall()]


class ReadingRows(SqlRows):
    """Rows as they stand, also those that this release cannot read. Tasks that are set apart are left out of what is due."""

    @abstractmethod
    def select_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        """The given tasks that exist, with all that is recorded of them, in the order asked for."""

    @abstractmethod
    def select_number(self, task_id: str) -> int | None:
        """A task's number by its id; None: there is none, or its ledger is not opened."""

    def select_first_waiting(self, convoy_no: int) -> int:
        """The number of the task that waits first in a convoy; 0: none does."""
        row = self.ask("select_first_waiting", {"convoy_no": convoy_no}).fetchone()
        return 0 if row is None else int(row[0])

    def close_unreadable(self, task_nos: Sequence[int]) -> None:
        """Close the alerts of tasks about a row that cannot be read."""
        self.ask("close_unreadable", {"task_nos": list(task_nos), "at": self.read_clock()})
        self.arrive()

    def select_due(self, workflows: Sequence[str], agents: Sequence[str], app: str, versions: Versions) -> Due:
        """See ``StateStore.due``."""
        raise NotImplementedError

    def select_news(self, process_no: int) -> list[tuple[int, int]]:
        """See ``StateStore.load_news``."""
        raise NotImplementedError

    def select_held(self, process_no: int, limit: int) -> list[int]:
        """Numbers of tasks that a process holds, or of which it runs a step."""
        return self._first_column("select_held", process_no=process_no, limit=limit, apart=self._quarantine.tasks())

    def select_past_deadline(self, now: Instant, since: Instant, until: Instant, limit: int) -> PastDeadline:
        """``since``: news that nobody has looked at since then make a task stuck. ``until``: of the next deadline."""
        asked = {"now": now, "limit": limit, "since": since, "until": until, "apart": self._quarantine.tasks()}
        names = ("select_expired", "select_starved", "select_past_limit", "select_stuck")
        expired, starved, limited, stuck = (self.ask(name, asked) for name in names)
        ahead = self.ask("select_next_deadline", asked) if until > now else None
        self.arrive()
        return PastDeadline(
            [self.step_as_is(row) for row in expired.fetchall()],
            [self.step_as_is(row) for row in starved.fetchall()],
            [row[0] for row in limited.fetchall()],
            [row[0] for row in stuck.fetchall()],
            None if ahead is None or (row := ahead.fetchone()) is None else row[0],
        )

    def select_children(self, step_nos: Sequence[int]) -> dict[int, TaskRow]:
        """Tasks that are steps of others, as they stand, by the numbers of those steps."""
        found = self.ask("select_children", {"step_nos": list(step_nos)}).fetchall()
        return {step_no: task for task in map(self.task_as_is, found) if (step_no := task.parent_step)}

    def select_parents(self, step_nos: Sequence[int]) -> dict[int, ParentStep]:
        """Steps that are tasks, by number, as far as they and the tasks that they belong to are there."""
        found = self.ask("select_parents", {"step_nos": list(step_nos)}).fetchall()
        return {row[0]: parent_step_of(row) for row in found}

    def select_forks(self, task_no: int, limit: int) -> list[TaskRow]:
        """The first forks of a task, as they stand, in the order of their numbers."""
        asked = {"first": step_number(task_no, 0), "last": step_number(task_no + 1, 0) - 1, "limit": limit}
        return [self.task_as_is(row) for row in self.ask("select_forks", asked).fetchall()]

    def select_ended(self, task_nos: Sequence[int]) -> list[TaskRow]:
        """The ended ones of the given tasks, ordered by their numbers."""
        return [self.task_as_is(row) for row in self.ask("select_ended", {"task_nos": list(task_nos)}).fetchall()]

    def select_name(self, task_no: int) -> tuple[str, str, object] | None:
        """A task's id, workflow and incarnation, as they stand."""
        row = self.ask("select_named", {"task_no": task_no}).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def select_unreadable(self, limit: int) -> list[tuple[int, str]]:
        """Tasks, and shared rows by their names (task 0), with an open alert about a row that cannot be read."""
        return [(row[0], row[1]) for row in self.ask("select_unreadable", {"limit": limit}).fetchall()]

    def close_unreadable_rows(self, names: Sequence[str]) -> None:
        """Close those alerts of shared rows."""
        for name in names:
            self.ask("close_unreadable_row", {"step": name, "at": self.read_clock()})
        self.arrive()


class LeaseRows(SqlRows):
    """Leases."""

    def select_lease(self, name: str) -> LeaseRow | None:
        """A lease as it stands, which others may change."""
        return next(iter(self.read_shared(LeaseRow, self.ask("look_at_lease", {"name": name}).fetchall())), None)

    @abstractmethod
    def add_lease(self, name: str) -> None:
        """Keep a lease that nobody holds, unless there is one."""

    @abstractmethod
    def lock_lease(self, name: str, *, to_grant: bool = False) -> LeaseRow | None:
        """A lease, ours until the transaction ends.

        Args:
            to_grant: wait also for transactions that are guarded by its term; a renewal must not wait for them.
        """

    @abstractmethod
    def read_epoch(self) -> int:
        """The store's life: the first, or that since it was restored last."""

    @abstractmethod
    def read_term(self, lease: str) -> int:
        """The term of a lease; 0: nobody had it."""

    def put_lease(self, lease: LeaseRow) -> None:
        holder, owner = (lease.holder, "") if not isinstance(lease.holder, str) else (None, lease.holder)
        self.ask("put_lease", {**msgspec.structs.asdict(lease), "holder": holder, "owner": owner})

    def select_leases(self) -> list[LeaseRow]:
        """All leases by name."""
        return self.read_shared(LeaseRow, self.ask("select_leases").fetchall())


class ProcessRows(LeaseRows):
    """Processes and epochs."""

    @abstractmethod
    def add_process(self, instance: str, lease_until: Instant, about: str) -> tuple[int, int]:
        """The number of a new process start, and the epoch in which it begins."""

    @abstractmethod
    def lock_process(self, process_no: int) -> ProcessRow | None:
        """None: a restore has forgotten it."""

    @abstractmethod
    def select_renewals(self, process_no: int) -> Renewals:
        """The other rows that a renewal needs."""

    @abstractmethod
    def renew_process(self, process_no: int, lease_until: Instant, now: Instant, room: str) -> bool:
        """Keep that it renewed now, prolong its lease, and keep what it reports of its room; False: it is retired."""

    @abstractmethod
    def open_epoch(self) -> int:
        """Begin the next epoch; returns its number.

        All processes are retired, secrets but that of callbacks are removed, and numbers that may have been given are left out.
        """

    def deliver_open_alerts_again(self) -> None:
        """Let every sink hear of all open alerts again, after a restore."""
        self.ask("deliver_open_alerts_again", {"at": self.read_clock()})

    def rename_workflows(self, old: str, new: str) -> None:
        """Let who submits by SQL find the workflows of an App under its new name, and no more under the old one."""

    def lock_known_code(self) -> list[str]:
        """The code of all processes that ever started here, as JSON texts; nobody else registers until this transaction ends."""
        return [about for (about,) in self.ask("select_known_code").fetchall()]

    def count_unsaid(self, workflows: Sequence[str]) -> Mapping[str, int]:
        """Tasks that carry no App's name and are open or held, by workflow."""
        return dict(self.ask("count_unsaid", {"workflows": list(workflows)}).fetchall())

    def retire_process(self, process_no: int, now: Instant) -> None:
        """It cannot renew its lease any longer, which has lapsed by now."""
        self.ask("retire_process", {"process_no": process_no, "now": now})

    def put_nobody_frees_until(self, until: Instant) -> None:
        self.ask("put_meta", {"name": "nobody_frees_until", "value": str(until)})

    def describe_process(self, process_no: int, about: str) -> None:
        """Replace what it says of itself, unless it is retired."""
        self.ask("describe_process", {"process_no": process_no, "about": about})

    def select_processes(self) -> list[ProcessRow]:
        """The processes that are not retired."""
        return self.read_shared(ProcessRow, self.ask("survey_processes").fetchall())


class LedgerRows(SqlRows):
    """New tasks, and rows inside a transaction that has locked a ledger's row."""

    @abstractmethod
    def ledger(self, ledger_no: int) -> LedgerRow | None: ...

    @abstractmethod
    def put_ledger(self, ledger: LedgerRow) -> None: ...

    @abstractmethod
    def add_ledger(self, ledger_id: str) -> LedgerRow:
        """The ledger of that id; a new one when there is none."""

    @abstractmethod
    def add_aside(self, ledger_no: int, line: int, reason: str) -> None: ...

    @abstractmethod
    def select_of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        """Tasks that it has not let go, after the last one that was reached, in the order of their lines."""

    @abstractmethod
    def order(self, tail: TailRow) -> None:
        """Keep how a key is ordered in which no task was placed yet."""

    @abstractmethod
    def find_known(self, command: Submit) -> TaskRow | None:
        """The task that stands under its id."""

    @abstractmethod
    def find_numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        """The task that has its sequence."""

    @abstractmethod
    def load_submitted(self, task_no: int) -> str | None:
        """The arguments, as JSON text, of a task that ``find_known`` or ``find_numbered`` has returned."""

    @abstractmethod
    def count_open_tasks(self, submitter: str, limit: int) -> int:
        """Count open tasks, with those that this transaction has added; no more than ``limit`` are counted."""

    @abstractmethod
    def next_task_no(self) -> int: ...

    @abstractmethod
    def add_task(self, task: TaskRow, arguments: str) -> None: ...

    @abstractmethod
    def find_tail(self, key: str) -> TailRow | None: ...

    @abstractmethod
    def tail(self, convoy_no: int) -> TailRow: ...

    @abstractmethod
    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        """The end of a key that nobody used before, whose rows are made now."""

    def select_ledger(self, ledger_id: str) -> LedgerRow | None:
        row = self.ask("select_ledger_by_id", {"ledger_id": ledger_id}).fetchone()
        return None if row is None else ledger_of(row)

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        """Remove tasks that it keeps; their numbers are not given again."""
        for name in ("purge_body", "purge_task"):
            self.ask(name, {"task_nos": [task.task_no for task in tasks]})

    def remove_ledger(self, ledger_no: int) -> None:
        """Remove the ledger itself, and what is kept of entries set aside."""
        for name in ("delete_ledger_aside", "delete_ledger"):
            self.ask(name, {"ledger_no": ledger_no})

    def keeps_some_in(self, convoy_no: int) -> bool:
        """Returns True if a ledger keeps a task of that convoy."""
        return self.ask("select_kept_in_convoy", {"convoy_no": convoy_no}).fetchone() is not None


class UpkeepRows(LedgerRows):
    """Statuses and alerts, and what is purged. Rows that others may hold are locked: the tail, the convoy, tasks."""

    def lock_gap_marks(self, queues: Sequence[str]) -> list[StatusRow]:
        """The gap marks of some queues, each of which has one at most."""
        return [status_of(row) for row in self.ask("select_gap_marks", {"queues": list(queues)}).fetchall()]

    def remove_statuses(self, statuses: Sequence[tuple[str, int]]) -> None:
        """Remove statuses, each by its queue and ``no``, that are still there."""
        rows = [{"queue": queue, "no": number} for queue, number in statuses]
        self.ask("delete_statuses", {"rows": msgspec.json.encode(rows).decode()})
        self.arrive()  # a connection that had ended before is noticed here, where nothing is in doubt yet

    @abstractmethod
    def hold_alerts(self, now: Instant, next_at: Instant, limit: int) -> list[AlertRow]:
        """Alerts due to be delivered, the longest waiting first: each is given ``next_at``, and one attempt more."""

    @abstractmethod
    def select_tail(self, key: str) -> TailRow | None: ...

    @abstractmethod
    def purge_tail(self, key: str) -> TailRow | None: ...

    @abstractmethod
    def purge_ledger(self, ledger_id: str) -> LedgerRow | None: ...

    @abstractmethod
    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        """The given tasks that exist, in the order of their numbers. Raises Busy: another transaction has one of them."""

    @abstractmethod
    def read_expected_unlocked(self, convoy_no: int) -> int:
        """The next number of a convoy's sequence; it only grows, so it is not locked."""

    def remove_tasks(self, task_nos: Sequence[int]) -> None:
        """Remove tasks with their steps, arguments, alerts and history. Their numbers are not given again."""
        for name in ("purge_history", "purge_alerts", "purge_body", "purge_steps", "purge_task"):
            self.ask(name, {"task_nos": list(task_nos)})

    def remove_convoy(self, convoy_no: int) -> None:
        """Its rows and its own history. Its number is not given again."""
        for name in ("delete_convoy", "delete_convoy_tail"):
            self.ask(name, {"convoy_no": convoy_no})
        self.ask("purge_history", {"task_nos": [-convoy_no]})

    def erase(self, rows: Sequence[int], events: str) -> None:
        """Replace the events of rows of the history by these, and their actors by nobody."""
        self.ask("erase_history", {"rows": list(rows), "events": events})

    def lock_old_statuses(self, before: Instant, limit: int) -> list[StatusRow]:
        """Statuses older than an instant, gap marks apart, in their order; nobody else drops any meanwhile."""
        found = self.ask("select_old_statuses", {"before": before, "limit": limit}).fetchall()
        return [status_of(row) for row in found]

    def keep_told(self, no: int, attempts: int, told: Sequence[str], next_at: Instant | None, error: str) -> bool:
        """Keep who was notified; False: taken or closed by others meanwhile."""
        names = msgspec.json.encode(list(told)).decode()
        asked = {"no": no, "attempts": attempts, "told": names, "next_at": next_at, "error": error}
        settled = self.ask("settle_alert", asked)
        self.arrive()
        return settled.rowcount == 1

    def select_of_convoy(self, convoy_no: int) -> list[int]:
        """Numbers of all tasks of a convoy, also of those that a ledger keeps."""
        return self._first_column("select_of_convoy", convoy_no=convoy_no)

    def select_earlier_runs(self, task_no: int) -> list[int]:
        """Numbers of the runs before the one that has the task's id; none if the number is not that run's."""
        return self._first_column("select_earlier_runs", task_no=task_no)

    def select_all_runs(self, task_nos: Sequence[int]) -> list[int]:
        """Numbers of all runs of the tasks that have more than one, by the number of any run."""
        return self._first_column("select_all_runs", task_nos=list(task_nos))

    def select_kept(self, ledger_no: int) -> list[int]:
        """Numbers of the tasks that a ledger has not let go."""
        return self._first_column("select_kept_by_ledger", ledger_no=ledger_no)

    def select_naming_ledger(self, said: str) -> list[tuple[int, int, int, str]]:
        """Number, task_no, link and hash of rows of the history in whose events ``said`` stands: of the store's own history,
        and the first ones of tasks."""
        rows = self.ask("select_naming_ledger", {"said": said}).fetchall()
        return [(no, task_no, link, digest) for no, task_no, link, digest in rows]

    def unread(self, task_nos: Sequence[int]) -> dict[int, str]:
        """A reply queue for each that has messages which nobody acknowledged."""
        return dict(self.ask("select_unread", {"task_nos": list(task_nos)}).fetchall())

    def untold(self, task_nos: Sequence[int]) -> set[int]:
        """The given tasks with an alert that is not delivered yet."""
        return set(self._first_column("select_untold", task_nos=list(task_nos)))
