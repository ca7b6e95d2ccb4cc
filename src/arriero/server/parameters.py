"""Parameters that several routes share: ids in paths, pages of lists, the headers of a submission."""

import re
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec
from fastapi import Header, Path, Query
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

WAIT_SECONDS_MAX = 60  # proxies end a request that is silent for longer

_match_wait = re.compile(r"wait\s*=\s*\"?(\d{1,9})\"?", re.ASCII).fullmatch


class Preferences(msgspec.Struct, frozen=True):
    """Preferences of the caller. ``wait``: seconds to wait for the end of the task; None: do not wait."""

    respond_async: bool = False
    wait: int | None = None

    @property
    def is_asked(self) -> bool:
        """Returns True if 202 is an answer that the caller expects."""
        return self.respond_async or self.wait is not None

    def format_applied(self) -> str:
        """Format the header Preference-Applied; empty: nothing was preferred."""
        words = ["respond-async"] if self.respond_async else []
        return ", ".join(words if self.wait is None else [*words, f"wait={self.wait}"])


def read_preferences(header: str | None) -> Preferences:
    """Read the header. As the standard asks, what is unknown or misspelt is not applied, and no error."""
    respond_async, wait = False, None
    for part in (header or "").split(","):
        token = part.split(";")[0].strip().lower()
        respond_async = respond_async or token == "respond-async"
        found = _match_wait(token)
        if found is not None and wait is None:
            wait = min(int(found[1]), WAIT_SECONDS_MAX)
    return Preferences(respond_async, wait)


KEPT = {"/": "%2F", ":": "%3A", "%": "%25"}  # characters that stay encoded until the id is read


def keep_encoded(raw_path: bytes) -> str:
    """Decode a path for routing. What separates parts of a path stays encoded where the caller has encoded it.

    Args:
        raw_path: as it came, without the query.
    Returns: the path in which ``/`` and ``:`` stand only where they separate. ``read_id`` decodes the rest.
    """
    parts: list[str] = []
    for part in raw_path.decode("ascii", "replace").split("/"):
        names = [unquote(name, errors="replace") for name in part.split(":")]
        parts.append(":".join("".join(KEPT.get(sign, sign) for sign in name) for name in names))
    return "/".join(parts)


def read_id(parameter: str) -> str:
    """Decode an id out of a routed path."""
    return unquote(parameter)


def write_id(value: str) -> str:
    """Encode an id as one part of a path. Dots alone would be read as a way up, so they are encoded, too."""
    return quote(value, safe="") if value.strip(".") else value.replace(".", "%2E")


class EncodedPaths:
    """ASGI middleware that routes by ``keep_encoded``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": keep_encoded(scope["raw_path"].split(b"?")[0])}
        await self._app(scope, receive, send)


PreferReply = Annotated[
    str | None,
    Header(
        alias="Prefer",
        description="`wait=N`: wait up to N seconds for the reply, 60 at most; 10 by default. `respond-async`: 202 as soon as"
        " the request is durable, if there is no reply yet.",
    ),
]
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
WorkflowName = Annotated[
    str,
    Path(description="The workflow's name, percent-encoded; step:NAME for tasks of one step."),
    AfterValidator(read_id),
]
AgentName = Annotated[str, Path(description="The Agent's name, percent-encoded."), AfterValidator(read_id)]
QueueName = Annotated[str, Path(description="The reply queue's name, percent-encoded."), AfterValidator(read_id)]

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Maximum number of rows.")]
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
