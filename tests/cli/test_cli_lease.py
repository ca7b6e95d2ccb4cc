"""`arriero lease`: who leads, since when, and an operator's break."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cli_calls import Call, json_lines

from arriero.leases import LeaseConnection, open_lease

URL = "sqlite:///arriero.db"


@asynccontextmanager
async def nightly() -> AsyncIterator[LeaseConnection]:
    async with open_lease(URL, "nightly").connected() as connection:
        yield connection


def do(work: Callable[[LeaseConnection], Awaitable[object]]) -> None:
    async def run() -> None:
        async with nightly() as connection:
            await work(connection)

    asyncio.run(run())


@pytest.fixture
def held(shop: Path) -> None:
    """A lease that ana holds for ten minutes."""
    do(lambda lease: lease.acquire("ana", 600.0))


@pytest.mark.usefixtures("held")
def test_the_leases_are_listed_with_their_holders(call: Call) -> None:
    header, line = call("lease", "list").stdout.splitlines()
    assert header.split() == ["lease", "holder", "term", "since", "lapses", "in", "duration", "broken", "by"]
    assert line.split()[:3] == ["nightly", "ana", "1"]
    (view,) = json_lines(call("lease", "list", "--json").stdout)
    assert (view["name"], view["holder"], view["term"], view["duration"]) == ("nightly", "ana", 1, 600.0)


@pytest.mark.usefixtures("held")
def test_a_lease_is_shown_with_what_happened_and_what_can_be_done(call: Call) -> None:
    shown = call("lease", "show", "nightly").stdout
    assert "holder:    ana\n" in shown
    assert "ana leads, in term 1\n" in shown
    assert "    arriero lease break nightly --reason TEXT\n" in shown
    found = json.loads(call("lease", "show", "nightly", "--json").stdout)
    assert found["lease"]["holder"] == "ana"
    assert [line.partition("Z ")[2] for line in found["history"]] == ["ana leads, in term 1"]


@pytest.mark.usefixtures("held")
def test_a_lease_of_another_place_is_looked_at_by_its_url(call: Call) -> None:
    assert "holder:    ana\n" in call("lease", "show", "nightly", "--lease", URL).stdout


@pytest.mark.usefixtures("held")
def test_a_break_keeps_who_and_why_and_the_holder_cannot_renew(call: Call) -> None:
    said = call("lease", "break", "nightly", "--by", "ops", "--reason", "it hangs").stdout
    assert said.startswith("lease nightly is taken from ana, term 1; another one may lead in 9 min 59 s at the latest")
    shown = call("lease", "show", "nightly").stdout
    assert 'broken:    by ops: "it hangs"\n' in shown
    assert 'ops took it from ana, term 1: "it hangs"' in shown
    assert "arriero lease break nightly --at-once --reason TEXT" in shown, "what is left to do"

    async def look(lease: LeaseConnection) -> None:
        assert await lease.acquire("ben", 600.0) is None

    do(look)


@pytest.mark.usefixtures("held")
def test_a_break_at_once_lets_another_one_lead(call: Call) -> None:
    result = call("lease", "break", "nightly", "--reason", "it is dead", "--at-once", "--json")
    assert json.loads(result.stdout)["outcome"] == "done"

    async def take(lease: LeaseConnection) -> None:
        grant = await lease.acquire("ben", 600.0)
        assert grant is not None
        assert grant.term == 2
        await lease.release(grant)

    do(take)
    shown = call("lease", "show", "nightly").stdout
    assert "holder:    nobody\n" in shown
    assert "what you can do" not in shown


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("show", "weekly"), "nobody ever held a lease 'weekly' in the store", 4),
        (("break", "weekly", "--reason", "why"), "lease 'weekly': nobody holds it; there is nothing to break", 3),
        (("break", "supervisor", "--reason", "why"), "the lease 'supervisor' is that of the Supervisors", 2),
        (("break", "nightly"), "Missing option '--reason'", 2),
        (("break", "nightly", "--reason", " "), "reason", 2),
        (("show", "nightly", "--lease", "ftp://host"), "no lease can be kept at 'ftp://host'", 2),
        (("show", "nightly", "--lease", "sqlite:///no/such/folder/x.db"), "no/such/folder does not exist", 5),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    call: Call, words: tuple[str, ...], message: str, code: int
) -> None:
    result = call("lease", *words)
    assert result.exit_code == code
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
