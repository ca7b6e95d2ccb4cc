"""`arriero token`: who may use the HTTP API."""

import re
from pathlib import Path

import pytest
from cli_calls import Call, json_lines

pytestmark = pytest.mark.usefixtures("shop")
TOKEN = re.compile(r"arriero_([0-9a-f]{16})_[0-9A-Za-z]{49}\n")


def test_a_token_alone_goes_to_standard_output_and_is_kept_nowhere(call: Call) -> None:
    made = call("token", "create", "ci", "--scope", "read,submit", "--scope", "agent:bank", "--by", "ana")
    found = TOKEN.fullmatch(made.stdout)
    assert found is not None
    assert f"token {found[1]} of ci may agent:bank, read, submit and never expires" in made.stderr
    secret = made.stdout.strip().rpartition("_")[2]
    assert secret not in made.stderr
    listed = call("token", "list", "--json").stdout + call("token", "list").stdout + call("history").stdout
    assert secret not in listed
    assert not [file for file in Path.cwd().glob("arriero.db*") if secret.encode() in file.read_bytes()]


def test_a_token_that_is_revoked_stays_in_the_list_with_the_reason(call: Call) -> None:
    call("token", "create", "ci", "--scope", "read", "--expires-in", "90d", "--by", "ana")
    (view,) = json_lines(call("token", "list", "--json").stdout)
    assert (view["name"], view["state"], view["scopes"]) == ("ci", "valid", ["read"])
    assert view["expires_at"] is not None
    said = call("token", "revoke", view["id"], "--by", "bob", "--reason", "laptop lost")
    assert "is revoked" in said.stdout
    (after,) = json_lines(call("token", "list", "--json").stdout)
    assert (after["state"], after["revoked_by"], after["revoked_reason"]) == ("revoked", "bob", "laptop lost")
    again = call("token", "revoke", view["id"], "--by", "eve", "--reason", "again")
    assert 'was revoked before, by bob: "laptop lost"' in again.stdout


def test_a_token_is_restricted_to_apps_and_workflows_and_the_list_says_so(call: Call) -> None:
    restricted = ("--app-name", "shop", "--app-name", "travel", "--workflow", "fulfil")
    made = call("token", "create", "partner", "--scope", "submit", *restricted, "--by", "ana")
    assert "may submit, restricted to App shop, travel; workflow fulfil, and never expires" in made.stderr
    (view,) = json_lines(call("token", "list", "--json").stdout)
    assert (view["apps"], view["workflows"]) == (["shop", "travel"], ["fulfil"])
    assert "App shop, travel; workflow fulfil" in call("token", "list").stdout


def test_a_cap_on_open_tasks_is_kept_with_a_token_and_the_list_says_so(call: Call) -> None:
    made = call("token", "create", "partner", "--scope", "submit", "--open-tasks-max", "1000", "--by", "ana")
    assert "may submit, restricted to 1,000 open tasks, and never expires" in made.stderr
    (view,) = json_lines(call("token", "list", "--json").stdout)
    assert view["open_tasks_max"] == 1_000
    assert "1,000 open tasks" in call("token", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("create", "ci", "--scope", "reed"), "scope 'reed' is not known; scopes are submit, read", 2),
        (("create", "ci"), "Missing option '--scope'", 2),
        (("create", " ", "--scope", "read"), "blank", 2),
        (("create", "a\nb", "--scope", "read"), "control characters are refused", 2),
        (("create", "a\u200bna", "--scope", "read"), "U+200B ZERO WIDTH SPACE, which cannot be seen", 2),
        (("create", "\u0430na", "--scope", "read"), "name of a token '\\u0430na' mixes letters of 2 scripts", 2),
        (("create", "ci", "--scope", "read", "--by", "\u0430na"), "by '\\u0430na' mixes letters of 2 scripts", 2),
        (("create", "ci", "--scope", "read", "--expires-in", "0"), "has expired is of no use", 2),
        (("create", "ci", "--scope", "read", "--expires-in", "soon"), "is not a duration", 2),
        (
            ("create", "ci", "--scope", "read", "--open-tasks-max", "0"),
            "it must be a whole number from 1 to 1,000,000",
            2,
        ),
        (("create", "ci", "--scope", "read", "--app-name", ""), "name of an App has 0 characters", 2),
        (("revoke", "0011", "--reason", "lost"), "no token has the id '0011'", 4),
    ],
)
def test_what_cannot_be_a_token_is_refused_in_one_line(
    call: Call, arguments: tuple[str, ...], said: str, code: int
) -> None:
    call("token", "create", "there", "--scope", "read", "--by", "ana")
    refused = call("token", *arguments)
    assert refused.exit_code == code
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
