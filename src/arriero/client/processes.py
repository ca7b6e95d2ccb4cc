"""Processes on a store as operators see them."""

from datetime import datetime

import msgspec

from ..core.lease import read_process_about
from ..model import Instant
from ..model.instants import as_datetime
from ..model.processes import ProcessRow
from ..store.state_store import StateStore


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A process as it stands.

    Attributes:
        process: its number in the store; ``name``: its host, its number there and a random end.
        state: ``alive``; ``draining``: it was asked to end; ``lost``: its lease has lapsed.
        app: whose code it runs; empty: of no App.
        agents: that it hosts. ``workflows``: whose code it has.
        versions: of its workflows that have other ones than version 1, by workflow.
        leads: it leads the Supervisors.
        lease_until: it is alive until then, unless it renews.
    """

    process: int
    name: str
    state: str
    app: str
    roles: tuple[str, ...]
    agents: tuple[str, ...]
    workflows: tuple[str, ...]
    versions: dict[str, tuple[str, ...]]
    leads: bool
    lease_until: datetime


async def load_process_views(store: StateStore) -> tuple[ProcessView, ...]:
    """Load the processes that are not retired, by number. Raises StoreError."""
    now, rows = await store.known_processes()
    leader = await store.survey_leader()
    leads = "" if leader is None else leader.process
    return tuple(_build_view(row, now, leads) for row in sorted(rows, key=lambda row: row.process_no))


def _build_view(row: ProcessRow, now: Instant, leader: str) -> ProcessView:
    about = read_process_about(row)
    is_alive = row.lease_until > now
    return ProcessView(
        process=row.process_no,
        name=row.instance,
        state="lost" if not is_alive else "draining" if about.leaving else "alive",
        app=about.app,
        roles=about.roles,
        agents=tuple(sorted({agent for agent, _ in about.steps})),
        workflows=about.workflows,
        versions=about.versions,
        leads=is_alive and row.instance == leader,
        lease_until=as_datetime(row.lease_until),
    )
