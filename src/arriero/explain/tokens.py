"""Diagnoses who may use the HTTP API, and from where."""

from collections.abc import Sequence

from ..core.tokens import TokenVerdict, find_state
from ..escaping import one_line
from ..loopback import is_loopback
from ..model import Instant, later
from ..tokens import TokenRow
from .doctor import NAMES_SHOWN_MAX, Finding
from .format import format_count, format_instant_and_age

EXPIRES_SOON_SECONDS = 7 * 86_400.0  # time enough to give the holder another one


def diagnose_tokens(rows: Sequence[TokenRow], now: Instant, *, serves: bool) -> list[Finding]:
    """Diagnose the tokens of a store. ``serves``: the settings here name the role http."""
    valid = [row for row in rows if find_state(row, now) is TokenVerdict.VALID]
    if not valid:
        if not serves and not rows:
            return []
        says = "there is no valid token, so nobody can use the HTTP API"
        return [Finding("information", "tokens", says, "make one: arriero token create NAME --scope SCOPE")]
    until = later(now, EXPIRES_SOON_SECONDS)
    ending = [(row.expires_at, row) for row in valid if row.expires_at is not None and row.expires_at <= until]
    if not ending:
        return [Finding("fine", "tokens", f"{format_count(len(valid), 'valid token')} of the HTTP API")]
    ending.sort(key=lambda one: one[0])
    named = ", ".join(f"{one_line(row.name)} ({row.token_id})" for _, row in ending[:NAMES_SHOWN_MAX])
    says = (
        f"{format_count(len(ending), 'token')} will expire within a week, the first at"
        f" {format_instant_and_age(ending[0][0], now)}: {named}"
    )
    remedy = "make another one of the same name, give it to its holder, then revoke the old one"
    return [Finding("care", "tokens", says, remedy)]


def diagnose_address(host: str, *, tls: bool, behind_proxy: str, unix_socket: str) -> list[Finding]:
    """Diagnose where the settings here let the HTTP API listen."""
    if unix_socket or is_loopback(host):
        return []
    if not tls and not behind_proxy:
        says = f"the HTTP API is to listen on {one_line(host)}, which is refused without TLS or a proxy"
        return [Finding("care", "http", says, "set http.host to 127.0.0.1, or http.tls_cert and http.tls_key")]
    how = "with TLS" if tls else f"without TLS, and believes the header {behind_proxy} of its proxy"
    remedy = "" if tls else "see that only the proxy can connect there"
    return [Finding("information", "http", f"the HTTP API listens on {one_line(host)}, open to others, {how}", remedy)]
