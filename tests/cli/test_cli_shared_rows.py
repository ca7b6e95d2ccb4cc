"""The command line on a shared row that this release cannot read: lists show the others, and doctor names the next command."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_calls import Call

from arriero import Agent, App, Attempt, Rate, workflow

bank = Agent("bank", limits=[Rate(5, per=60, key=lambda who: who, name="of customer")], breaker_key=lambda who: who)


@bank.step(effect_free=True)
async def pay(attempt: Attempt, who: str) -> str:
    return who


@workflow
async def paid(who: str) -> str:
    return await pay(who)


@pytest.fixture
def furnished(shop: Path) -> Path:
    """A store with rows of breakers, limits, rates, convoys, leases, ledgers and tokens, of a victim and of another."""
    app = App("bank", store=f"sqlite:///{shop / 'arriero.db'}", agents=[bank], workflows=[paid])

    async def furnish() -> None:
        async with app.running():
            for who in ("victim", "other"):
                await (await app.submit(paid(who), convoy=who)).result()
                await app.agent("bank", target=who).open(by="ana", reason="test")
                store = app.session.store
                await store.acquire_lease(who, "host-1", "host-1", 3_600.0)
                await store.begin_ledger(who)
                await app.tokens.create(who, scopes=["read"], by="ana")

    asyncio.run(furnish())
    return shop


DAMAGES = {
    "breaker": ("breaker", "state", "target = 'victim'", ("agent", "list"), "arriero agent close bank --target victim"),
    "limits": ("agent_limits", "limits", "agent = 'bank'", ("agent", "show", "bank"), "restart a process of App bank"),
    "rate": ("rate", "begun", "key = 'victim'", ("agent", "show", "bank"), "correct that column, or delete the row"),
    "lease": ("lease", "until", "name = 'victim'", ("lease", "list"), "arriero lease break victim --at-once"),
    "token": ("token", "scopes", "name = 'victim'", ("token", "list"), "arriero token create"),
    "ledger": ("ledger", "state", "ledger_id = 'victim'", ("ledger", "list", "--all"), "correct that column"),
    "convoy": ("convoy", "ordering", "key = 'victim'", ("convoy", "list", "--state", "idle"), "correct that column"),
    "tail": ("convoy_tail", "ordering", "key = 'victim'", ("convoy", "list", "--state", "idle"), "correct that column"),
    "process": ("process", "about", "1", ("doctor",), "restart it if it is alive"),
}


@pytest.mark.parametrize("which", DAMAGES)
def test_lists_show_the_other_rows_and_doctor_names_the_row_and_the_next_command(
    call: Call, furnished: Path, which: str
) -> None:
    table, column, where, listing, remedy = DAMAGES[which]
    with closing(sqlite3.connect(furnished / "arriero.db")) as connection, connection:
        assert connection.execute(f"UPDATE arriero_{table} SET {column} = 'nonsense' WHERE {where}").rowcount
    listed = call(*listing)
    assert listed.exit_code == (1 if listing == ("doctor",) else 0), listed.stderr
    if which not in ("limits", "process"):
        assert "other" in listed.stdout
    told = call("doctor")
    assert told.exit_code == 1
    named = " ".join(told.stdout.split())
    assert f"cannot be read: column {column} of table {table}" in named
    assert remedy in named


def test_a_breaker_that_cannot_be_read_is_shown_with_its_problem_and_closed(call: Call, furnished: Path) -> None:
    with closing(sqlite3.connect(furnished / "arriero.db")) as connection, connection:
        connection.execute("UPDATE arriero_breaker SET state = 'nonsense' WHERE target = 'victim'")
    shown = call("agent", "show", "bank")
    assert "its row cannot be read: column state of table breaker" in " ".join(shown.stdout.split())
    closed = call("agent", "close", "bank", "--target", "victim", "--reason", "test")
    assert closed.exit_code == 0, closed.stderr
    assert "table breaker" not in call("doctor").stdout
    exported = call("export")
    (furnished / "export.jsonl").write_text(exported.stdout)
    checked = call("check", "export.jsonl")
    assert checked.exit_code == 0, checked.stdout
