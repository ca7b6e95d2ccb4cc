"""The fold of events about tokens of the HTTP API: who made one, and who took it back and why."""

from collections.abc import Callable

from ..events.store import TokenCreated, TokenRevoked

Convict = Callable[[str, str], None]


class TokenFold:
    """The fold of all tokens."""

    def __init__(self, convict: Convict) -> None:
        self._convict = convict
        self._valid: dict[str, bool] = {}  # by id; False: it was revoked

    def fold(self, actor: str, event: TokenCreated | TokenRevoked) -> None:
        """Fold one event."""
        if not actor:
            self._convict("I59", f"{event.type} of token {event.token} by nobody")
        if isinstance(event, TokenCreated):
            if event.token in self._valid:
                self._convict("I59", f"token {event.token} was created twice")
            self._valid[event.token] = True
            return
        if not event.reason:
            self._convict("I59", f"token {event.token} was revoked without a reason")
        if not self._valid.get(event.token):
            self._convict("I59", f"token {event.token} was revoked, but was not valid")
        self._valid[event.token] = False
