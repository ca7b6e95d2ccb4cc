"""Who sends a request. What decides is behind ``Authenticator``: tokens of the store, or a proxy's header."""

from typing import Protocol

from starlette.requests import Request

from .calls import Caller


class Authenticator(Protocol):
    """Tells who sends a request."""

    async def authenticate(self, request: Request) -> Caller:
        """The caller. Raises Problem (unauthenticated) - no valid credential."""
        ...
