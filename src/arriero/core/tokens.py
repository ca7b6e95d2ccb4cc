"""Tokens of the HTTP API: how one is written, and whether it may pass."""

import hashlib
import hmac
import re
import zlib
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from ..errors import InvalidInput
from ..model import Instant, later
from ..model.answers import TOO_MANY_OPEN_TASKS, Refusal
from ..model.commands import Submit
from ..model.tokens import NAMED_PREFIXES, NewToken, Reach, Scope, TokenRow
from ..payloads.codec import check_id


def refuse_beyond_cap(command: Submit, open_tasks: int) -> Refusal | None:
    """Refuse a new task whose submitter has as many open tasks as its cap allows; None: there is room, or no cap.

    ``open_tasks``: tasks of the submitter that have not ended, with those that the same transaction has accepted before.
    """
    cap = command.open_tasks_max
    if cap is None or open_tasks < cap:
        return None
    return Refusal(
        TOO_MANY_OPEN_TASKS,
        f"{open_tasks:,} tasks of token {command.submitter} are open, and its open_tasks_max is {cap:,}: wait until some have"
        " ended, or ask for a token with a higher one (`arriero token create --open-tasks-max`)",
    )


PREFIX = "arriero"  # by which scanners of secrets recognise a token
OPEN_TASKS_CAP_MAX = 1_000_000  # open tasks are counted up to the cap by each submission
ID_BYTES = 8  # 64 bits: two tokens never meet
SECRET_BYTES = 32  # as strong as the hash that is kept of it
LAST_USE_SECONDS = 60.0  # between writes of the last use: a request must not cost a write
TOKEN_LENGTH_MAX = 100  # of any text that is looked at closely; a token has 74 characters
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 43  # digits that hold 256 bits
_CHECK_LENGTH = 6  # digits that hold the 32 bits of a checksum
# A checksum ends it, so that a scanner knows a token from a text that looks like one, and a typing error costs no query.
_match_token = re.compile(rf"{PREFIX}_([0-9a-f]{{16}})_([0-9A-Za-z]{{43}})([0-9A-Za-z]{{6}})", re.ASCII).fullmatch


class TokenParts(msgspec.Struct, frozen=True):
    """Parts of a sent token: its id and its secret."""

    token_id: str
    secret: str

    def __repr__(self) -> str:  # a secret is in no log, nor in a traceback
        return f"<token {self.token_id}>"


class TokenVerdict(StrEnum):
    """Verdict on a token."""

    VALID = "valid"
    UNKNOWN = "unknown"  # also one with another secret: a caller is not informed which ids there are
    EXPIRED = "expired"
    REVOKED = "revoked"


def build_parts(id_bytes: bytes, secret_bytes: bytes) -> TokenParts:
    """Build a new token from random bytes, ``ID_BYTES`` and ``SECRET_BYTES`` of them."""
    assert (len(id_bytes), len(secret_bytes)) == (ID_BYTES, SECRET_BYTES)
    return TokenParts(id_bytes.hex(), _write_number(int.from_bytes(secret_bytes), _SECRET_LENGTH))


def format_token(parts: TokenParts) -> str:
    """Write a token as its holder keeps it: ``arriero_ID_SECRET``."""
    return f"{PREFIX}_{parts.token_id}_{parts.secret}{_compute_check(parts)}"


def parse_token(text: str) -> TokenParts | None:
    """Read a token; None: no token is written so."""
    if len(text) > TOKEN_LENGTH_MAX or (found := _match_token(text)) is None:
        return None
    token_id, secret, check = found.groups()
    parts = TokenParts(token_id, secret)
    return parts if _compute_check(parts) == check else None


def _compute_check(parts: TokenParts) -> str:
    return _write_number(zlib.crc32(f"{parts.token_id}_{parts.secret}".encode()), _CHECK_LENGTH)


def _write_number(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def compute_digest(secret: str) -> str:
    """Compute what is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def judge_token(row: TokenRow | None, secret: str, now: Instant) -> TokenVerdict:
    """Judge whether a token may pass.

    Args:
        row: under the id that was sent; None: there is none.
        secret: that was sent. It is compared in constant time, and first: only its holder is informed what became of a token.
        now: the store's clock.
    """
    if row is None or not hmac.compare_digest(row.digest, compute_digest(secret)):
        return TokenVerdict.UNKNOWN
    return find_state(row, now)


def list_left_behind(rows: Iterable[TokenRow], names: Mapping[str, str], now: Instant) -> list[TokenRow]:
    """List the valid tokens that are restricted to an App by its old name alone. ``names``: new names by old ones."""
    valid = [row for row in rows if find_state(row, now) is TokenVerdict.VALID]
    return [row for row in valid if any(names.get(app, app) not in row.apps for app in row.apps)]


def find_state(row: TokenRow, now: Instant) -> TokenVerdict:
    """Find whether a token is valid, no matter who holds it."""
    if row.revoked_at is not None:
        return TokenVerdict.REVOKED
    if row.expires_at is not None and row.expires_at <= now:
        return TokenVerdict.EXPIRED
    return TokenVerdict.VALID


def is_use_due(last_used_at: Instant | None, now: Instant) -> bool:
    """Return True if a use is to be written now: the last one that was written is a minute old."""
    return last_used_at is None or later(last_used_at, LAST_USE_SECONDS) <= now


def build_row(token: NewToken, now: Instant) -> TokenRow:
    """Build the row of a token that is kept now."""
    return TokenRow(
        token_id=token.token_id,
        name=token.name,
        digest=token.digest,
        scopes=token.scopes,
        created_at=now,
        created_by=token.created_by,
        expires_at=None if token.expires_in is None else later(now, token.expires_in),
        apps=token.reach.apps,
        workflows=token.reach.workflows,
        open_tasks_max=token.open_tasks_max,
    )


def revoke_token(row: TokenRow, now: Instant, by: str, reason: str) -> TokenRow | None:
    """Revoke a token. None: it is revoked already, and stays so under the first reason."""
    if row.revoked_at is not None:
        return None
    return replace(row, revoked_at=now, revoked_by=by, revoked_reason=reason)


def check_reach(apps: Iterable[str], workflows: Iterable[str]) -> Reach:
    """Check the Apps and workflows that a new token is restricted to. Raises InvalidInput - a name that none can have."""
    return Reach(_check_names(apps, "an App"), _check_names(workflows, "a workflow"))


def _check_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidInput(f"the name of {what} is {names!r}; give a list, like [{names!r}]")
    return tuple(sorted({check_id(name, f"name of {what}") for name in names}))


def check_open_tasks_max(value: object) -> int | None:
    """Check the cap of a new token; None: there is none. Raises InvalidInput."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= OPEN_TASKS_CAP_MAX:
        raise InvalidInput(
            f"open_tasks_max is {value!r}; it must be a whole number from 1 to {OPEN_TASKS_CAP_MAX:,}, or none"
        )
    return value


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Check the scopes of a new token; sorted, each once. Raises InvalidInput - none, or one that is not known."""
    if isinstance(scopes, str):
        raise InvalidInput(f"scopes is {scopes!r}; give a list, like ['read']")
    found = sorted({str(scope) for scope in scopes})
    named = (f"{prefix}{name}" for prefix in NAMED_PREFIXES for name in ("NAME", "*"))
    known = f"scopes are {', '.join((*Scope, *named))}"
    if not found:
        raise InvalidInput(f"a token without a scope may do nothing; {known}")
    for scope in found:
        prefix = scope[: scope.find(":") + 1]
        if scope not in tuple(Scope) and (prefix not in NAMED_PREFIXES or scope == prefix):
            raise InvalidInput(f"scope {scope!r} is not known; {known}")
        check_id(scope, "scope")
    return tuple(found)
