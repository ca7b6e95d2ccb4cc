"""Parameters that several routes share: ids in paths, pages of lists, the headers of a submission."""

from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import AfterValidator

from .paths import read_id

LIMIT = 50  # things in a page
LIMIT_MAX = 200
CURSOR_LENGTH_MAX = 500


def describe_id(what: str) -> Any:
    """Build the type of an id in a path. ``what``: what it is, like "The Agent's name"."""
    return Annotated[str, Path(description=f"{what}, percent-encoded."), AfterValidator(read_id)]


TaskId = Annotated[str, Path(description="The task's business id, percent-encoded."), AfterValidator(read_id)]
ConvoyKey = Annotated[str, Path(description="The convoy's key, percent-encoded."), AfterValidator(read_id)]
LedgerId = Annotated[str, Path(description="The ledger's id, percent-encoded."), AfterValidator(read_id)]
ScheduleName = Annotated[str, Path(description="The schedule's name, percent-encoded."), AfterValidator(read_id)]
LeaseName = Annotated[str, Path(description="The lease's name, percent-encoded."), AfterValidator(read_id)]
AgentName = Annotated[str, Path(description="The Agent's name, percent-encoded."), AfterValidator(read_id)]
QueueName = Annotated[str, Path(description="The reply queue's name, percent-encoded."), AfterValidator(read_id)]

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="So many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=CURSOR_LENGTH_MAX, description="`next` of the page before; left out: the first page.")
]
OfApp = Annotated[
    str | None, Query(max_length=255, description="Its App; needed only if several Apps have one of the name.")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The task's id, 1 to 255 characters of ASCII; any other id goes into the body. The same key again is the"
        " same task.",
    ),
]
Prefer = Annotated[
    str | None,
    Header(
        alias="Prefer",
        description="`respond-async`: 202 as soon as the task is durable. `wait=N`: wait up to N seconds for its end.",
    ),
]
