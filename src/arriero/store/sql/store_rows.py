"""Rows of the store as a whole inside one transaction: schedules, tokens, what is obsolete, and all families together."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Instant, TaskRow
from ...model.agents import BreakerKey, BreakerRow
from ...model.leases import LeaseRow
from ...model.processes import ProcessRow
from ...model.schedules import DueSchedule, OpenRun, ScheduleRow
from ...model.tokens import TokenRow
from ..rows import Row, shared_as_is
from .agent_rows import AgentMetricsRows, BreakerTable, LimitTable, RemoteAgentRows
from .rows import LedgerRows, ProcessRows, ReadingRows, SqlRows, UpkeepRows
from .signal_rows import SignalTable
from .workflow_pauses import WorkflowPauseRows


def schedule_as_is(row: Row) -> ScheduleRow:
    """A schedule, also where this release cannot read it."""
    return shared_as_is(ScheduleRow, row)


class ScheduleRows(SqlRows):
    """Rows of schedules."""

    def select_due_schedules(self, now: Instant, limit: int) -> list[DueSchedule]:
        """Schedules whose ``look_at`` has come, longest due first."""
        found = self.ask("select_due_schedules", {"now": now, "limit": limit}).fetchall()
        schedules = [(schedule_as_is(row[:-2]), row[-2:]) for row in found]
        return [
            DueSchedule(row, bool(is_open), cancellable or "", self._quarantine.is_readable(row))
            for row, (is_open, cancellable) in schedules
        ]

    def lock_cancellable_runs(self, app: str, name: str, limit: int) -> list[OpenRun]:
        """Lock the first open runs of a schedule that are not being undone. Raises Busy: another transaction has one."""
        asked = {"app": app, "name": name, "limit": limit}
        return [OpenRun(*row) for row in self.ask("select_cancellable_runs", asked).fetchall()]

    def select_next_look(self, now: Instant) -> Instant | None:
        """The first ``look_at`` after now."""
        row = self.ask("select_next_look", {"now": now}).fetchone()
        return None if row is None else Instant(row[0])

    def has_open_run(self, app: str, name: str) -> bool:
        """Returns True if a run of a schedule has not ended."""
        return self.ask("select_open_run", {"app": app, "name": name}).fetchone() is not None

    def lock_schedules(self, keys: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        """Lock those of the given schedules that exist, in the order of their keys."""
        asked = {"apps": [app for app, _ in keys], "names": [name for _, name in keys]}
        return [schedule_as_is(row) for row in self.ask("lock_schedules", asked).fetchall()]

    def add_schedule(self, row: ScheduleRow) -> bool:
        """Keep a new schedule. False: another process has added one of the name meanwhile."""
        return self.ask("add_schedule", _parameters_of(row)).rowcount == 1

    def put_schedule(self, row: ScheduleRow) -> None:
        """Keep a changed schedule, which this transaction has locked."""
        self.ask("put_schedule", _parameters_of(row))

    def remove_schedule(self, row: ScheduleRow) -> None:
        self.ask("remove_schedule", {"app": row.app, "name": row.name})

    def close_schedule_alert(self, row: ScheduleRow, at: Instant) -> None:
        """Close the open alert of a schedule: every sink is to be delivered again."""
        self.ask("close_schedule_alert", {"step": row.name, "code": row.app, "at": at})

    def select_schedules(self, app: str | None) -> list[ScheduleRow]:
        return [schedule_as_is(row) for row in self.ask("select_schedules", {"app": app}).fetchall()]

    def select_schedule(self, app: str, name: str) -> ScheduleRow | None:
        row = self.ask("select_schedule", {"app": app, "name": name}).fetchone()
        return None if row is None else schedule_as_is(row)


def _parameters_of(row: ScheduleRow) -> dict[str, Any]:
    return msgspec.structs.asdict(row) | {"state": str(row.state)}


class TokenRows(SqlRows):
    """Rows of tokens."""

    def add_token_row(self, row: TokenRow) -> bool:
        """Keep a new row. False: there is one under its id."""
        fields = msgspec.structs.asdict(row)
        names = {name: msgspec.json.encode(fields[name]).decode() for name in ("scopes", "apps", "workflows")}
        return self.ask("add_token", {**fields, **names}).rowcount == 1

    def lock_token(self, token_id: str) -> TokenRow | None:
        """A token, ours until the transaction ends."""
        found = self.ask("lock_token", {"token_id": token_id}).fetchall()
        return next(iter(self.read_shared(TokenRow, found)), None)

    def put_token(self, row: TokenRow) -> None:
        """Keep what changes of a row that this transaction has locked: its last use, and its revocation."""
        names = ("token_id", "last_used_at", "revoked_at", "revoked_by", "revoked_reason")
        self.ask("put_token", {name: getattr(row, name) for name in names})

    def select_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        return self.read_shared(TokenRow, self.ask("select_tokens", {"token_ids": list(token_ids)}).fetchall())

    def select_all_tokens(self) -> list[TokenRow]:
        """List tokens by the time of their creation."""
        return self.read_shared(TokenRow, self.ask("select_all_tokens").fetchall())


class ObsoleteRows(SqlRows):
    """Rows that may be obsolete. Those that are locked are passed over by others."""

    def select_unnamed_processes(self, before: Instant, limit: int) -> list[ProcessRow]:
        """Retired processes whose lease had lapsed by then, and that no task, step, lease or count names; oldest first."""
        found = self.ask("select_unnamed_processes", {"before": before, "limit": limit})
        return self.read_shared(ProcessRow, found.fetchall())

    def select_code_of_processes(self) -> list[tuple[str, int]]:
        """Each text by which processes describe themselves, once, with the number of the last process that does."""
        return [(about, process_no) for about, process_no in self.ask("select_code_of_processes").fetchall()]

    def remove_processes(self, process_nos: Sequence[int]) -> None:
        self.ask("delete_processes", {"process_nos": list(process_nos)})
        self.arrive()

    def lock_old_leases(self, before: Instant, limit: int) -> list[LeaseRow]:
        """Leases that had lapsed by then, locked."""
        return self.read_shared(LeaseRow, self.ask("lock_old_leases", {"before": before, "limit": limit}).fetchall())

    def remove_leases(self, names: Sequence[str]) -> None:
        self.ask("delete_leases", {"names": list(names)})
        self.arrive()

    def lock_old_breakers(self, before: Instant, limit: int) -> list[BreakerRow]:
        """Closed breakers that had not changed since then, locked."""
        found = self.ask_of_agents("lock_old_breakers", {"before": before, "limit": limit})
        return self.read_shared(BreakerRow, found.fetchall())

    def remove_breakers(self, keys: Sequence[BreakerKey]) -> None:
        for app, agent, target in keys:
            self.ask_of_agents("delete_breaker", {"app": app, "agent": agent, "target": target})
        self.arrive()

    def remove_told_alerts(self, before: Instant, limit: int) -> int:
        """Remove alerts of no task that were closed by then and that every sink knows; answers how many."""
        removed = self.ask("delete_told_alerts", {"before": before, "limit": limit})
        self.arrive()
        return removed.rowcount

    def raise_floor(self, name: str, value: int) -> None:
        """Raise a setting of the store that only grows; see ``read_floor``."""
        self.ask("raise_meta", {"name": name, "value": str(value)})


class StoreRows(
    SignalTable,
    BreakerTable,
    LimitTable,
    WorkflowPauseRows,
    ReadingRows,
    ProcessRows,
    UpkeepRows,
    AgentMetricsRows,
    RemoteAgentRows,
    ScheduleRows,
    TokenRows,
    ObsoleteRows,
):
    """All rows that one transaction outside of batches of commands may need."""


class SubmissionRows(LedgerRows):
    """Rows that a new task needs; see also ``engine.convoys.PlacementRows``."""

    @abstractmethod
    def task_by_id(self, task_id: str) -> TaskRow | None: ...

    @abstractmethod
    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        """The task of a convoy with a number of its producer's sequence."""

    @abstractmethod
    def next_convoy_no(self) -> int: ...

    @abstractmethod
    def read_expected(self, convoy_no: int) -> int:
        """The next number of a convoy's sequence."""
