"""The header Prefer (RFC 7240): whether a submission is answered at once or waits for the end of its task."""

import re

import msgspec

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
