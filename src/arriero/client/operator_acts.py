"""Acts of operators in the whole store, the newest first."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from ..explain.operator_acts import OperatorAct, list_acts
from ..model.instants import as_datetime
from ..store.state_store import StateStore

CHUNK = 200  # commits that are read at a time
SCANNED_MAX = 2_000  # commits that one page looks through for the acts of one operator


class ActView(msgspec.Struct, frozen=True, kw_only=True):
    """An act of an operator.

    Attributes:
        by: who; empty: the history does not say.
        verb: like ``resubmit`` or ``paused``.
        kind: of the thing: task, convoy, agent, schedule, workflow, lease, token or store.
        subject: its name or id; empty: it is the store itself, or a task that was purged.
        reason: as the operator gave it.
        says: all of it in a sentence.
    """

    at: datetime
    by: str
    verb: str
    kind: str
    subject: str
    reason: str
    says: str


class ActPage(NamedTuple):
    """Acts, the newest first. ``before``: the number of the commit before which the next page begins; None: this is the last."""

    acts: tuple[ActView, ...]
    before: int | None


async def load_act_page(
    store: StateStore, *, by: str | None = None, before: int | None = None, limit: int = 50, tokens: bool = True
) -> ActPage:
    """Load a page of acts.

    Args:
        by: only of this operator. Then a page looks through 2,000 commits at most, so it may be empty and not the last one.
        before: only commits before this number; None: from the last one on.
        limit: of commits with such an act; one of these may have several acts.
        tokens: with those on tokens.
    Raises: StoreError.
    """
    found: list[ActView] = []
    commits = scanned = 0
    while scanned < SCANNED_MAX:
        rows = await store.load_acts(before, limit=min(CHUNK, limit + 1))
        for row in rows:
            if commits == limit:
                return ActPage(tuple(found), before)
            scanned, before = scanned + 1, row.no
            acts = [
                _build_view(act) for act in list_acts(row) if by in (None, act.by) and (tokens or act.kind != "token")
            ]
            found += acts
            commits += bool(acts)
        if len(rows) < min(CHUNK, limit + 1):
            return ActPage(tuple(found), None)
    return ActPage(tuple(found), before)


def _build_view(act: OperatorAct) -> ActView:
    return ActView(**{**msgspec.structs.asdict(act), "at": as_datetime(act.at)})
