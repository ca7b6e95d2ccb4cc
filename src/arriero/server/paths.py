"""Ids in paths: a slash or a colon that is percent-encoded belongs to the id and separates nothing."""

from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

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
