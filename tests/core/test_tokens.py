"""Tokens as values: how one is written, and which may pass."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.tokens import (
    TokenVerdict,
    build_parts,
    build_row,
    check_scopes,
    compute_digest,
    format_token,
    is_use_due,
    judge_token,
    parse_token,
    revoke_token,
)
from arriero.errors import InvalidInput
from arriero.model import Instant, later
from arriero.model.tokens import NewToken, TokenRow

NOON = Instant(1_700_000_000_000_000)
PARTS = build_parts(bytes(range(8)), bytes(range(32)))


def row(**changes: object) -> TokenRow:
    fields: dict[str, object] = {
        "token_id": PARTS.token_id,
        "name": "ci",
        "digest": compute_digest(PARTS.secret),
        "scopes": ("read",),
        "created_by": "ana",
        "expires_in": 60.0,
    }
    return build_row(NewToken(**(fields | changes)), NOON)  # type: ignore[arg-type]


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=32, max_size=32))
def test_a_token_is_read_as_it_was_written(id_bytes: bytes, secret_bytes: bytes) -> None:
    parts = build_parts(id_bytes, secret_bytes)
    text = format_token(parts)
    assert parse_token(text) == parts
    assert re.fullmatch(r"arriero_[0-9a-f]{16}_[0-9A-Za-z]{49}", text)


@given(st.integers(0, 73), st.sampled_from("0aZ"))
def test_a_token_with_a_sign_that_was_changed_is_no_token(at: int, sign: str) -> None:
    text = format_token(PARTS)
    changed = text[:at] + sign + text[at + 1 :]
    assert changed == text or parse_token(changed) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "arriero",
        "arriero__",
        format_token(PARTS) + "x",
        format_token(PARTS) + "\n",
        " " + format_token(PARTS),
        "x" * 10_000,
        format_token(PARTS).upper(),
        "arriero_" + "٣" * 16 + "_" + "a" * 49,
        "é" * 74,
        "\0",
    ],
)
def test_what_is_not_written_as_a_token_is_none(text: str) -> None:
    assert parse_token(text) is None


def test_a_secret_is_not_shown_where_its_parts_are() -> None:
    assert PARTS.secret not in repr(PARTS)


@pytest.mark.parametrize(
    ("found", "secret", "seconds", "verdict"),
    [
        (row(), PARTS.secret, 0, TokenVerdict.VALID),
        (row(), PARTS.secret, 59.999_999, TokenVerdict.VALID),
        (row(), PARTS.secret, 60, TokenVerdict.EXPIRED),
        (row(expires_in=None), PARTS.secret, 1e9, TokenVerdict.VALID),
        (row(), PARTS.secret[:-1], 0, TokenVerdict.UNKNOWN),
        (row(), "", 0, TokenVerdict.UNKNOWN),
        (row(), compute_digest(PARTS.secret), 0, TokenVerdict.UNKNOWN),
        (None, PARTS.secret, 0, TokenVerdict.UNKNOWN),
        (revoke_token(row(), NOON, "ana", "left"), PARTS.secret, 0, TokenVerdict.REVOKED),
        (revoke_token(row(), NOON, "ana", "left"), "another", 0, TokenVerdict.UNKNOWN),
    ],
)
def test_a_token_passes_while_it_is_known_unexpired_and_not_revoked(
    found: TokenRow | None, secret: str, seconds: float, verdict: TokenVerdict
) -> None:
    assert judge_token(found, secret, later(NOON, seconds)) is verdict


def test_a_token_that_is_revoked_keeps_its_first_reason() -> None:
    revoked = revoke_token(row(), NOON, "ana", "left")
    assert revoked is not None
    assert revoke_token(revoked, later(NOON, 1), "bob", "again") is None


@pytest.mark.parametrize(("before", "seconds", "due"), [(None, 0, True), (NOON, 59, False), (NOON, 60, True)])
def test_the_last_use_is_written_once_a_minute(before: Instant | None, seconds: float, due: bool) -> None:
    assert is_use_due(before, later(NOON, seconds)) is due


def test_scopes_are_sorted_and_each_is_there_once() -> None:
    assert check_scopes(["read", "agent:bank", "read", "agent:*"]) == ("agent:*", "agent:bank", "read")
    assert check_scopes(["replies:a:b", "replies:*"]) == ("replies:*", "replies:a:b")


@pytest.mark.parametrize(
    "scopes", [[], ["reed"], ["agent:"], ["replies:"], ["reply:desk"], ["READ"], "read", [""], ["agent:a\nb"]]
)
def test_a_scope_that_is_not_known_is_refused(scopes: list[str]) -> None:
    with pytest.raises(InvalidInput):
        check_scopes(scopes)
