"""The submission of ``--break order``: each task of a convoy is opened at once, whatever of its key is under way.

A negative control: the run must end with exit code 1, and the check of each customer's order must name the orders that
were not handled in their turn. The library has no switch for this; the rows are changed here, behind its back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import submit
from .ledger import Order
from .places import Place

_submitted = submit.submitted_together


async def _submitted_and_opened(batch: Sequence[Order], place: Place, connection: Any) -> bool:
    if not await _submitted(batch, place, connection):
        return False
    while not _opened(place, connection):
        pass
    return True


def _opened(place: Place, connection: Any) -> bool:
    """Let every task be claimed that waits for its turn. False: another transaction came first."""
    opens = "UPDATE {task} SET turn = 'open', not_before = submitted_at WHERE turn = 'waiting'".format(**place.tables)
    try:
        with place.transaction(connection):
            connection.execute(opens)
    except place.conflicts:
        return False
    return True


if __name__ == "__main__":
    submit.submitted_together = _submitted_and_opened
    sys.exit(submit.main(sys.argv[1:]))
