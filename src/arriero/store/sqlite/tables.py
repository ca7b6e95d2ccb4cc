"""Rows of the file inside one transaction, as ``core.transitions`` and ``store.batch`` ask for them."""

import sqlite3
from functools import cache
from importlib import resources
from typing import Any, Protocol

from ...core.epoch import FIRST, first_number
from ...core.lease import PROBATION_FROM
from ...model import STEP_BITS, AlertRow, Instant, LeaseRow, ProcessRow, StatusRow, StepRow, TaskRow
from .rows import parameters_of, process_of, step_of, task_of

STORE_LINK, STORE_HEAD = "history_link", "history_head"


@cache
def query(name: str) -> str:
    """The statement in ``queries/<name>.sql``."""
    return resources.files(__package__).joinpath("queries", f"{name}.sql").read_text()


def step_range(task_no: int) -> dict[str, int]:
    """Between which numbers a task's steps lie."""
    return {"first": task_no << STEP_BITS, "end": (task_no + 1) << STEP_BITS}


class Executes(Protocol):
    """A connection, as far as it is needed here."""

    def execute(self, sql: str, parameters: Any = ..., /) -> sqlite3.Cursor: ...


class Tables:
    """The Table of ``store.batch`` over one connection."""

    def __init__(self, connection: Executes) -> None:
        self.connection = connection
        self._execute = connection.execute

    def task(self, task_no: int) -> TaskRow | None:
        row = self._execute(query("select_task"), {"task_no": task_no}).fetchone()
        return None if row is None else task_of(row)

    def task_by_id(self, task_id: str) -> TaskRow | None:
        row = self._execute(query("select_task_by_id"), {"task_id": task_id}).fetchone()
        return None if row is None else task_of(row)

    def arguments(self, task_no: int) -> str:
        text: str = self._execute(query("select_body"), {"task_no": task_no}).fetchone()[0]
        return text

    def step(self, step_no: int) -> StepRow | None:
        row = self._execute(query("select_step"), {"step_no": step_no}).fetchone()
        return None if row is None else step_of(row)

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        return tuple(map(step_of, self._execute(query("select_steps"), step_range(task_no))))

    def open_steps(self, task_no: int) -> list[StepRow]:
        return [step_of(row) for row in self._execute(query("select_open_steps"), step_range(task_no)).fetchall()]

    def process_is_retired(self, process_no: int) -> bool:
        row = self._execute(query("select_process"), {"process_no": process_no}).fetchone()
        return row is None or process_of(row).retired

    def process_was_retired(self, process_no: int) -> bool:
        row = self._execute(query("select_process"), {"process_no": process_no}).fetchone()
        return row is not None and process_of(row).retired

    def term(self, lease: str) -> int:
        return self.lease(lease).term

    def add_task(self, task: TaskRow, arguments: str) -> None:
        self._execute(query("insert_task"), parameters_of(task))
        self._execute(query("insert_body"), {"task_no": task.task_no, "arguments": arguments})

    def next_task_no(self) -> int:
        """The number of the next task; nobody else can take it while the write lock is ours."""
        number: int = self._execute(query("select_next_task_no")).fetchone()[0]
        return number

    def put_task(self, task: TaskRow, *, rewrites: bool = False) -> None:
        self._execute(query("rewrite_task" if rewrites else "update_task"), parameters_of(task))

    def put_step(self, step: StepRow, *, rewrites: bool = False) -> None:
        self._execute(query("rewrite_step" if rewrites else "update_step"), parameters_of(step))

    def add_step(self, step: StepRow) -> None:
        self._execute(query("insert_step"), parameters_of(step))

    def put_arguments(self, task_no: int, arguments: str) -> None:
        self._execute(query("update_body"), {"task_no": task_no, "arguments": arguments})

    # --- statuses and alerts
    def add_status(self, status: StatusRow) -> None:
        self._execute(query("insert_status"), parameters_of(status))

    def add_alert(self, alert: AlertRow) -> None:
        self._execute(query("insert_alert"), parameters_of(alert))

    def close_alert(self, task_no: int, at: Instant) -> None:
        self._execute(query("close_alert"), {"task_no": task_no, "at": at})

    # --- what is due
    def claimable(self, priority: int, now: Instant, workflows: str, probation: bool, limit: int) -> list[TaskRow]:
        asked = {"priority": priority, "now": now, "workflows": workflows, "probation": probation, "limit": limit}
        asked["probation_from"] = PROBATION_FROM
        return [task_of(row) for row in self._execute(query("select_claimable"), asked).fetchall()]

    def takeable(
        self, agent: str, priority: int, now: Instant, names: str, probation: int | None, limit: int
    ) -> list[StepRow]:
        asked = {
            "agent": agent,
            "priority": priority,
            "now": now,
            "names": names,
            "probation": probation,
            "limit": limit,
        }
        asked["probation_from"] = PROBATION_FROM
        return [step_of(row) for row in self._execute(query("select_takeable"), asked).fetchall()]

    # --- processes and leases
    def add_process(self, instance: str, lease_until: Instant, about: str) -> int:
        asked = {"instance": instance, "lease_until": lease_until, "about": about}
        number = self._execute(query("insert_process"), asked).lastrowid
        assert number is not None
        return number

    def epoch(self) -> int:
        """The store's life: the first, or that since it was restored last."""
        return int(self.meta("epoch") or FIRST)

    def open_epoch(self, epoch: int) -> None:
        """Retire every process, and leave out the numbers that may have been given in the time that was lost."""
        first = first_number(epoch)
        self.put_meta("epoch", epoch)
        self.put_meta("last_task_no", max(self.next_task_no(), first) - 1)
        self._execute(query("retire_all_processes"))
        self._execute(query("leave_out_processes"), {"process_no": first - 1, "instance": f"epoch-{epoch}"})

    def process(self, process_no: int) -> ProcessRow:
        return process_of(self._execute(query("select_process"), {"process_no": process_no}).fetchone())

    def other_processes(self, process_no: int) -> list[ProcessRow]:
        rows = self._execute(query("select_other_processes"), {"process_no": process_no}).fetchall()
        return [process_of(row) for row in rows]

    def renew_process(self, process_no: int, lease_until: Instant) -> bool:
        return (
            self._execute(query("renew_process"), {"process_no": process_no, "lease_until": lease_until}).rowcount == 1
        )

    def retire_process(self, process_no: int) -> None:
        self._execute(query("retire_process"), {"process_no": process_no})

    def lease(self, name: str) -> LeaseRow:
        row = self._execute(query("select_lease"), {"name": name}).fetchone()
        return LeaseRow(name, 0, None, Instant(0)) if row is None else LeaseRow(*row)

    def put_lease(self, lease: LeaseRow) -> None:
        asked = {"name": lease.name, "term": lease.term, "holder": lease.holder, "until": lease.until}
        self._execute(query("put_lease"), asked)

    # --- the store's own
    def latest_instant(self) -> Instant:
        """When the last commit of the history was made; 0 when there is none."""
        instant: Instant = self._execute(query("select_latest_instant")).fetchone()[0]
        return instant

    def meta(self, name: str) -> str | None:
        row = self._execute(query("select_meta"), {"name": name}).fetchone()
        return None if row is None else row[0]

    def put_meta(self, name: str, value: object) -> None:
        self._execute(query("put_meta"), {"name": name, "value": str(value)})

    def store_head(self) -> tuple[int, str]:
        return int(self.meta(STORE_LINK) or 0), self.meta(STORE_HEAD) or ""

    def put_store_head(self, link: int, head: str) -> None:
        self.put_meta(STORE_LINK, link)
        self.put_meta(STORE_HEAD, head)

    def add_history(
        self, task_no: int, task_id: str, link: int, at: Instant, actor: str, events: str, digest: str
    ) -> None:
        self._execute(
            query("insert_history"),
            {"task_no": task_no, "link": link, "at": at, "actor": actor, "events": events, "hash": digest},
        )
