"""Processes, leases and epochs on PostgreSQL."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ...epoch import FIRST, compute_first_number
from ...model import NOT_SAID, Instant, LeaseRow
from ...processes import ProcessAbout, ProcessRow
from ..contract import Renewals
from ..sql.rows import ProcessRows
from . import columns
from .task_rows import PostgresWrittenRows

_read_about = msgspec.json.Decoder(ProcessAbout).decode


class PostgresProcessRows(PostgresWrittenRows, ProcessRows):
    """Rows of processes, leases and epochs on PostgreSQL. The clock is read anew after each lock."""

    def lock_known_code(self) -> list[str]:
        self.ask("lock_registration").fetchone()
        return super().lock_known_code()

    def add_process(self, instance: str, lease_until: Instant, about: str) -> tuple[int, int]:
        asked = {"instance": instance, "lease_until": lease_until, "about": about}
        row = self.ask("insert_process", asked).fetchone()
        assert row is not None
        said = _read_about(about)
        if said.policies:
            rows = columns.as_json(_workflows(said.policies))
            self.ask("put_workflows", {"rows": rows})
            if said.app != NOT_SAID:
                self.ask("put_app_workflows", {"app": said.app, "rows": rows})
        return row[0], row[1]

    def lock_process(self, process_no: int) -> ProcessRow | None:
        row = self.ask("lock_process", {"process_no": process_no}).fetchone()
        self._now = None
        return None if row is None else self.read_shared(ProcessRow, [row])[0]

    def select_renewals(self, process_no: int) -> Renewals:
        if self._context.has_server_clock:
            self.ask("mend_clock")
        clock = self._context.ask_clock(self.transaction)
        seen = self.ask("select_last_renewal")
        others = self.ask("select_other_processes", {"process_no": process_no})
        self.arrive()
        self.keep_clock(clock)
        last, until = seen.fetchone() or (None, None)
        named = self.read_shared(ProcessRow, others.fetchall())
        return Renewals(None if last is None else Instant(last), Instant(until or 0), tuple(named))

    def renew_process(self, process_no: int, lease_until: Instant, now: Instant, room: str) -> bool:
        asked: dict[str, Any] = {"process_no": process_no, "epoch": self._context.epoch, "lease_until": lease_until}
        asked |= {"renewed_at": now, "room": room}
        (is_renewed,) = self.ask("renew_process", asked).fetchone() or (False,)
        return bool(is_renewed)

    def read_epoch(self) -> int:
        (epoch,) = self.ask("select_meta", {"name": "epoch"}).fetchone() or (FIRST,)
        return int(epoch)

    def open_epoch(self) -> int:
        row = self.ask("lock_epoch").fetchone()
        assert row is not None
        epoch = int(row[0]) + 1
        self.ask("put_meta", {"name": "epoch", "value": str(epoch)})
        self.ask("close_epoch")
        self.ask("delete_secrets")
        self.ask("number_from", {"first": compute_first_number(epoch)})
        return epoch

    def rename_workflows(self, old: str, new: str) -> None:
        self.ask("copy_app_workflows", {"app": old, "new": new})
        self.ask("delete_app_workflows", {"app": old})

    # --- leases
    def select_lease(self, name: str) -> LeaseRow | None:
        row = self.ask("look_at_lease", {"name": name}).fetchone()
        return None if row is None else self.read_shared(LeaseRow, [row])[0]

    def add_lease(self, name: str) -> None:
        self.ask("add_lease", {"name": name})

    def lock_lease(self, name: str, *, to_grant: bool = False) -> LeaseRow | None:
        row = self.ask("lock_lease_to_grant" if to_grant else "select_lease", {"name": name}).fetchone()
        self._now = None
        return None if row is None else self.read_shared(LeaseRow, [row])[0]


def _workflows(policies: Mapping[str, str]) -> list[dict[str, Any]]:
    limits = {name: msgspec.json.decode(policy).get("complete_within") for name, policy in policies.items()}
    return [{"name": n, "policy": policies[n], "complete_within": limits[n]} for n in sorted(policies)]
