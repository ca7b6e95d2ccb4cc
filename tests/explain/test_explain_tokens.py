"""What the doctor says of tokens and of the address of the HTTP API."""

import pytest

from arriero.core.tokens import build_row, revoke_token
from arriero.explain.doctor_server import diagnose_address, diagnose_tokens
from arriero.model import Instant
from arriero.model.tokens import NewToken, TokenRow

NOON = Instant(1_700_000_000_000_000)
DAY = 86_400.0


def token(name: str, days: float | None) -> TokenRow:
    seconds = None if days is None else days * DAY
    new = NewToken(token_id="0011", name=name, digest="d", scopes=("read",), created_by="ana", expires_in=seconds)
    return build_row(new, NOON)


@pytest.mark.parametrize(
    ("rows", "serves", "level", "part"),
    [
        ([], False, None, ""),
        ([], True, "information", "no valid token"),
        ([revoke_token(token("ci", None), NOON, "ana", "lost")], False, "information", "no valid token"),
        ([token("ci", 0)], True, "information", "no valid token"),
        ([token("ci", None), token("desk", 7.1)], True, "fine", "2 valid tokens"),
        ([token("ci", None), token("de\nsk", 7)], False, "care", "1 token will expire within a week"),
    ],
)
def test_the_doctor_cares_for_tokens_that_end_soon(
    rows: list[TokenRow], serves: bool, level: str | None, part: str
) -> None:
    found = diagnose_tokens(rows, NOON, serves=serves)
    assert [finding.level for finding in found] == ([] if level is None else [level])
    assert all(part in finding.says and "\n" not in finding.says for finding in found)


@pytest.mark.parametrize(
    ("host", "tls", "proxy", "socket", "level"),
    [
        ("127.0.0.1", False, "", "", None),
        ("0.0.0.0", False, "", "/run/a.sock", None),
        ("0.0.0.0", False, "", "", "care"),
        ("0.0.0.0", True, "", "", "information"),
        ("10.0.0.1", False, "x-user", "", "information"),
    ],
)
def test_the_doctor_tells_of_an_open_address(host: str, tls: bool, proxy: str, socket: str, level: str | None) -> None:
    found = diagnose_address(host, tls=tls, behind_proxy=proxy, unix_socket=socket)
    assert [finding.level for finding in found] == ([] if level is None else [level])
