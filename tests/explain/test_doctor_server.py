"""What needs care on a server: each threshold from both sides, and each finding with what to do."""

from typing import Any

import msgspec
import pytest
from core_rows import NOW

from arriero.explain.doctor import Finding
from arriero.explain.doctor_server import (
    CLOCK_SECONDS_MAX,
    CONNECTIONS_FREE_MIN,
    DEAD_ROWS_MIN,
    HELD_ROWS_MIN,
    RETAINED_BYTES_MAX,
    ROWS_UNVACUUMED_MAX,
    count_required_standbys,
    diagnose_server,
)
from arriero.inspection.facts import (
    BLOCKING_SECONDS_MAX,
    OPEN_SECONDS_MAX,
    OpenTransaction,
    ReplicationSlot,
    ServerFacts,
    Standby,
    TableFacts,
)
from arriero.model import later
from arriero.text.format import format_instant


def server(**changes: Any) -> ServerFacts:
    """A server with which all is well."""
    facts = ServerFacts(
        now=NOW,
        user="shop",
        sees_all=True,
        version="16.4",
        schema=3,
        schema_known=3,
        synchronous_commit="on",
        fsync=True,
        full_page_writes=True,
        standby_names="s1",
        standbys=(Standby(name="s1", sync="sync", held=None),),
        connections=10,
        connections_max=100,
        clock_ahead=0.0,
        round_trip=0.001,
        listening="heard",
        autovacuum=True,
        tables=(TableFacts("arriero.task", 1_000, 10, True, True),),
        transactions=(),
        slots=(),
    )
    return msgspec.structs.replace(facts, **changes)


def session(**changes: Any) -> OpenTransaction:
    """A transaction that has been open for too long."""
    open_since = later(NOW, -OPEN_SECONDS_MAX - 120)
    held = OpenTransaction(pid=77, user="anna", application="report", since=open_since, state="idle in transaction")
    return msgspec.structs.replace(held, **changes)


def found(**changes: Any) -> list[Finding]:
    """What is not fine."""
    findings = diagnose_server(server(**changes), arriero="1.0", python="3.13.1", driver="3.3")
    return [finding for finding in findings if finding.level != "fine"]


def only(**changes: Any) -> Finding:
    """The one thing that is not fine."""
    (finding,) = found(**changes)
    return finding


def test_a_lock_that_others_wait_for_is_shown_after_seconds_and_a_transaction_that_nobody_waits_for_is_not() -> None:
    young = later(NOW, -BLOCKING_SECONDS_MAX - 1)
    told = only(transactions=(session(since=young, blocks=2, locks=("task (RowExclusiveLock)",)),))
    assert (told.level, "2 sessions wait for it" in told.says) == ("care", True)
    assert found(transactions=(session(since=young),)) == []
    assert found(transactions=(session(since=later(NOW, -BLOCKING_SECONDS_MAX + 1), blocks=2),)) == []


def test_a_server_with_which_all_is_well_shows_only_what_is_fine() -> None:
    findings = diagnose_server(server(), arriero="1.0", python="3.13.1", driver="3.3")
    assert {finding.level for finding in findings} == {"fine"}
    assert findings[0].says == "arriero 1.0, Python 3.13.1, PostgreSQL 16.4, psycopg 3.3"
    about = ["versions", "schema", "durability", "standby", "connections", "clock", "listen", "vacuum", "transactions"]
    assert [finding.about for finding in findings] == about


def test_an_older_schema_needs_care_and_a_newer_one_is_told() -> None:
    older, newer = only(schema=2), only(schema=4)
    assert (older.level, newer.level) == ("care", "information")
    assert "the schema is number 2, this release of arriero needs number 3" in older.says
    assert older.remedy.startswith("arriero migrate")


@pytest.mark.parametrize("off", [{"fsync": False}, {"full_page_writes": False}])
def test_a_server_that_does_not_write_to_the_disk_needs_care(off: dict[str, bool]) -> None:
    finding = only(**off)
    assert finding.level == "care"
    assert f"{next(iter(off))} off" in finding.says
    both = only(fsync=False, full_page_writes=False)
    assert "fsync off and full_page_writes off" in both.says


@pytest.mark.parametrize(("value", "is_told"), [("off", 1), ("local", 1), ("on", 0), ("remote_apply", 0)])
def test_a_synchronous_commit_that_arriero_raises_is_told(value: str, is_told: int) -> None:
    assert [finding.level for finding in found(synchronous_commit=value)] == ["information"] * is_told


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ("", 0),
        (" ", 0),
        ("s1", 1),
        ("s1, s2", 1),
        ("*", 1),
        ("2 (s1, s2)", 2),
        ("FIRST 3 (a,b,c)", 3),
        ("any 2(a,b)", 2),
    ],
)
def test_the_setting_says_for_how_many_standbys_a_commit_waits(names: str, count: int) -> None:
    assert count_required_standbys(names) == count


def test_commits_that_wait_for_a_standby_that_is_not_there_need_care() -> None:
    missing = only(standbys=())
    assert missing.level == "care"
    assert "commits wait for 1 standby of s1, and 0 standbys are connected: every commit hangs" in missing.says
    assert "synchronous_standby_names" in missing.remedy
    one, other = Standby(name="s1", sync="quorum", held=None), Standby(name="s2", sync="quorum", held=None)
    assert only(standby_names="ANY 2 (s1, s2)", standbys=(one,)).level == "care"
    assert found(standby_names="ANY 2 (s1, s2)", standbys=(one, other)) == []
    potential = Standby(name="s2", sync="potential", held=None)
    assert only(standby_names="FIRST 2 (s1, s2)", standbys=(one, potential)).level == "care"


def test_standbys_that_nobody_waits_for_and_those_that_cannot_be_seen_are_told() -> None:
    alone = only(standby_names="", standbys=())
    behind = only(standby_names="", standbys=(Standby(name="s1", sync="async", held=None),))
    hidden = only(standbys=(Standby(name="s1", sync="", held=None),))
    assert [finding.level for finding in (alone, behind, hidden)] == ["information"] * 3
    assert "there is no standby" in alone.says
    assert "commits wait for no standby (s1)" in behind.says
    assert hidden.remedy == "GRANT pg_monitor TO shop"


def test_connections_near_their_end_need_care() -> None:
    assert found(connections=89, connections_max=100) == []
    assert only(connections=90, connections_max=100).level == "care"
    assert found(connections=10, connections_max=10 + CONNECTIONS_FREE_MIN) == []
    assert only(connections=10, connections_max=9 + CONNECTIONS_FREE_MIN).level == "care"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_differs_by_more_than_the_answer_took_is_told(sign: int) -> None:
    assert found(clock_ahead=sign * CLOCK_SECONDS_MAX, round_trip=0.0) == []
    assert found(clock_ahead=sign * (CLOCK_SECONDS_MAX + 1), round_trip=1.0) == []
    finding = only(clock_ahead=sign * (CLOCK_SECONDS_MAX + 1), round_trip=0.0)
    assert finding.level == "information"
    assert f"is 3.0 s {'ahead of' if sign > 0 else 'behind'} this machine's" in finding.says


def test_wake_ups_that_do_not_arrive_are_told() -> None:
    assert found(listening="off") == []
    assert "as behind a pooler" in only(listening="silent").says
    refused = only(listening="refused", listening_error="connection refused")
    assert (refused.level, "connection refused" in refused.says) == ("information", True)
    assert "listen_url=" in refused.remedy


def test_a_server_and_a_table_that_are_not_vacuumed_by_themselves_need_care() -> None:
    assert only(autovacuum=False).level == "care"
    finding = only(tables=(TableFacts("arriero.task", 1, 1, True, False),))
    assert (finding.level, finding.remedy) == ("care", "ALTER TABLE arriero.task RESET (autovacuum_enabled)")


def test_a_table_full_of_dead_rows_needs_care() -> None:
    for dead, live, count in (
        (DEAD_ROWS_MIN, DEAD_ROWS_MIN - 1, 1),
        (DEAD_ROWS_MIN, DEAD_ROWS_MIN, 0),
        (DEAD_ROWS_MIN - 1, 0, 0),
    ):
        findings = found(tables=(TableFacts("arriero.task", live, dead, True, True),))
        assert [finding.level for finding in findings] == ["care"] * count
    assert "VACUUM (ANALYZE) arriero.task" in only(tables=(TableFacts("arriero.task", 0, 10**6, True, True),)).remedy


def test_a_large_table_that_was_never_vacuumed_is_told() -> None:
    assert found(tables=(TableFacts("arriero.task", ROWS_UNVACUUMED_MAX - 1, 0, False, True),)) == []
    assert only(tables=(TableFacts("arriero.task", ROWS_UNVACUUMED_MAX, 0, False, True),)).level == "information"


# --- what holds everything up
def test_a_transaction_open_for_too_long_is_named_with_all_that_is_known_and_what_to_do() -> None:
    finding = only(transactions=(session(client="10.0.0.7", locks=("task (RowExclusiveLock)",), blocks=2, held=900),))
    assert finding.level == "care"
    assert finding.says == (
        "session 77 of user anna, application report from 10.0.0.7, has a transaction open since"
        f" {format_instant(later(NOW, -180))} (3 min ago) (idle in transaction); it locks task (RowExclusiveLock);"
        " 2 sessions wait for it; nothing that changed since can be vacuumed (900 transactions)"
    )
    assert finding.remedy.endswith("or end the session: SELECT pg_terminate_backend(77)")
    assert "application without a name," in only(transactions=(session(application=""),)).says


def test_a_younger_transaction_is_nobodys_trouble() -> None:
    assert found(transactions=(session(since=later(NOW, -OPEN_SECONDS_MAX)),)) == []
    assert len(found(transactions=(session(since=later(NOW, -OPEN_SECONDS_MAX - 0.001)),))) == 1


def test_a_prepared_transaction_is_named_with_how_to_end_it() -> None:
    finding = only(transactions=(session(pid=None, name="it's", state="prepared"),))
    assert (
        'transaction "it\'s" of user anna, prepared for two-phase commit and never ended, has been open' in finding.says
    )
    assert "ROLLBACK PREPARED 'it''s'" in finding.remedy


def test_a_session_that_one_may_not_see_is_named_once_it_holds_up_much() -> None:
    hidden = {"since": None, "state": "state not known"}
    assert found(transactions=(session(held=HELD_ROWS_MIN, **hidden),)) == []
    finding = only(transactions=(session(held=HELD_ROWS_MIN + 1, **hidden),))
    assert "has a transaction open (state not known); nothing that changed since" in finding.says


def test_a_slot_that_keeps_rows_or_the_log_needs_care() -> None:
    assert (
        found(slots=(ReplicationSlot(name="s", is_active=False, held=HELD_ROWS_MIN, retained=RETAINED_BYTES_MAX),))
        == []
    )
    assert found(slots=(ReplicationSlot(name="s", is_active=True, held=None, retained=RETAINED_BYTES_MAX + 1),)) == []
    rows = only(slots=(ReplicationSlot(name="s", is_active=False, held=HELD_ROWS_MIN + 1, retained=0),))
    log = only(slots=(ReplicationSlot(name="s", is_active=False, held=None, retained=RETAINED_BYTES_MAX + 1),))
    assert rows.says.startswith("replication slot s, which nobody reads, keeps rows visible")
    assert log.says.startswith("replication slot s, which nobody reads, keeps 1.0 GB of the log")
    assert "pg_drop_replication_slot('s')" in rows.remedy
    assert "pg_drop" in log.remedy
    read = only(slots=(ReplicationSlot(name="s", is_active=True, held=HELD_ROWS_MIN + 1, retained=0),))
    assert (read.remedy, "which nobody reads" in read.says) == ("end the long query on its standby", False)


def test_a_long_query_on_a_standby_needs_care() -> None:
    feeding = Standby(name="s1", sync="sync", held=HELD_ROWS_MIN + 1)
    assert "a query on standby s1 keeps rows visible" in only(standbys=(feeding,)).says


def test_a_user_that_may_not_see_others_is_told_how_to() -> None:
    finding = only(sees_all=False)
    assert (finding.level, finding.remedy) == ("information", "GRANT pg_monitor TO shop")
