"""Rows that both databases find and change by statements of the same names; the engine's protocols say what each is for."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from ...model import Instant, LeaseRow, LedgerRow, StatusRow, StepRow, TaskRow
from ...processes import ProcessRow
from ..engine.reading import PastDeadline
from ..quarantine import Quarantine, S
from ..readable import KEYS, TABLES
from ..rows import Row, lease_as_is, ledger_of, shared_as_is, status_of

_OF_LEASES = ("name", "term", "holder", "until", "owner", "duration", "since", "broken_by", "broken_reason")


class StatementAnswer(Protocol):
    """The answer to a statement."""

    def fetchone(self) -> Row | None: ...
    def fetchall(self) -> list[Row]: ...

    @property
    def rowcount(self) -> int: ...


class SqlRows:
    """Statements inside one transaction. Lists are parameters as they are; each database sends them in its own way."""

    _quarantine: Quarantine
    task_as_is: Callable[[Row], TaskRow]
    step_as_is: Callable[[Row], StepRow]

    def ask(self, name: str, parameters: Mapping[str, Any] | None = None, /) -> StatementAnswer:
        """Execute the statement of that name. On PostgreSQL the answer may come later, at the latest when it is read."""
        raise NotImplementedError

    def ask_of_agents(self, name: str, parameters: Mapping[str, Any]) -> StatementAnswer:
        """Ask about breakers or limits. What this transaction has still to write says nothing of them."""
        return self.ask(name, parameters)

    def arrive(self) -> None:
        """Wait for the answers to all that was asked."""
        raise NotImplementedError

    def read_clock(self) -> Instant:
        """See ``store.engine.batch.Table``."""
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


class SqlReadingRows(SqlRows):
    """``engine.reading.ReadingRows``, as far as both databases do the same."""

    def select_held(self, process_no: int, limit: int) -> list[int]:
        return self._first_column("select_held", process_no=process_no, limit=limit, apart=self._quarantine.tasks())

    def select_past_deadline(self, now: Instant, since: Instant, until: Instant, limit: int) -> PastDeadline:
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

    def select_ended(self, task_nos: Sequence[int]) -> list[TaskRow]:
        return [self.task_as_is(row) for row in self.ask("select_ended", {"task_nos": list(task_nos)}).fetchall()]

    def select_name(self, task_no: int) -> tuple[str, str, object] | None:
        row = self.ask("select_named", {"task_no": task_no}).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def select_unreadable(self, limit: int) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in self.ask("select_unreadable", {"limit": limit}).fetchall()]

    def close_unreadable_rows(self, names: Sequence[str]) -> None:
        for name in names:
            self.ask("close_unreadable_row", {"step": name, "at": self.read_clock()})
        self.arrive()


class SqlProcessRows(SqlRows):
    """``engine.processes.ProcessRows``, as far as both databases do the same."""

    def lock_known_code(self) -> list[str]:
        return [about for (about,) in self.ask("select_known_code").fetchall()]

    def count_unsaid(self, workflows: Sequence[str]) -> dict[str, int]:
        return dict(self.ask("count_unsaid", {"workflows": list(workflows)}).fetchall())

    def retire_process(self, process_no: int, now: Instant) -> None:
        self.ask("retire_process", {"process_no": process_no, "now": now})

    def put_nobody_frees_until(self, until: Instant) -> None:
        self.ask("put_meta", {"name": "nobody_frees_until", "value": str(until)})

    def describe_process(self, process_no: int, about: str) -> None:
        self.ask("describe_process", {"process_no": process_no, "about": about})

    def select_processes(self) -> list[ProcessRow]:
        return self.read_shared(ProcessRow, self.ask("survey_processes").fetchall())

    def put_lease(self, lease: LeaseRow) -> None:
        holder, owner = (lease.holder, "") if not isinstance(lease.holder, str) else (None, lease.holder)
        self.ask("put_lease", {**msgspec.structs.asdict(lease), "holder": holder, "owner": owner})

    def select_leases(self) -> list[LeaseRow]:
        return self.read_shared(LeaseRow, self.ask("select_leases").fetchall())


class SqlUpkeepRows(SqlRows):
    """``engine.upkeep.UpkeepRows``, as far as both databases do the same."""

    def lock_old_statuses(self, before: Instant, limit: int) -> list[StatusRow]:
        found = self.ask("select_old_statuses", {"before": before, "limit": limit}).fetchall()
        return [status_of(row) for row in found]

    def keep_told(self, no: int, attempts: int, told: Sequence[str], next_at: Instant | None, error: str) -> bool:
        names = msgspec.json.encode(list(told)).decode()
        asked = {"no": no, "attempts": attempts, "told": names, "next_at": next_at, "error": error}
        settled = self.ask("settle_alert", asked)
        self.arrive()
        return settled.rowcount == 1

    def select_ledger(self, ledger_id: str) -> LedgerRow | None:
        row = self.ask("select_ledger_by_id", {"ledger_id": ledger_id}).fetchone()
        return None if row is None else ledger_of(row)

    def remove_ledger(self, ledger_no: int) -> None:
        for name in ("delete_ledger_aside", "delete_ledger"):
            self.ask(name, {"ledger_no": ledger_no})

    def keeps_some_in(self, convoy_no: int) -> bool:
        return self.ask("select_kept_in_convoy", {"convoy_no": convoy_no}).fetchone() is not None

    def select_of_convoy(self, convoy_no: int) -> list[int]:
        return self._first_column("select_of_convoy", convoy_no=convoy_no)

    def select_kept(self, ledger_no: int) -> list[int]:
        return self._first_column("select_kept_by_ledger", ledger_no=ledger_no)

    def select_naming_ledger(self, said: str) -> list[tuple[int, int, int, str]]:
        rows = self.ask("select_naming_ledger", {"said": said}).fetchall()
        return [(no, task_no, link, digest) for no, task_no, link, digest in rows]

    def unread(self, task_nos: Sequence[int]) -> dict[int, str]:
        return dict(self.ask("select_unread", {"task_nos": list(task_nos)}).fetchall())

    def untold(self, task_nos: Sequence[int]) -> set[int]:
        return set(self._first_column("select_untold", task_nos=list(task_nos)))
