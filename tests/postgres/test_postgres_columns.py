"""One row travels as its fields, many as JSON: what is kept is the same."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import psycopg
import pytest
from postgres_servers import database, emptied

from arriero.errors import InvalidInput
from arriero.model import Turn
from arriero.store.postgres import columns
from arriero.store.postgres.session import PostgresSession, Statements, TransactionLimits
from arriero.store.postgres.target import target_of

NAMES = ("task_no", "output", "turn", "not_before", "priority", "taken", "gap_within", "told")
INSERT = columns.insert_rows("alike", NAMES)
INSERT_DICTS = columns.insert_rows("alike", NAMES, from_dicts=True)
UPDATE = columns.update_rows("alike", "task_no", NAMES[1:])


class Kept(msgspec.Struct, frozen=True):
    """One value of each type that columns have, and a field that is no column."""

    task_no: int
    output: str | None = None
    turn: Turn | None = None
    not_before: int | None = None
    priority: int | None = None
    taken: bool | None = None
    gap_within: float | None = None
    told: tuple[str, ...] | None = None
    other: str = "no column"


ROWS = (
    Kept(1),
    Kept(2, "", Turn.WAITING, 0, 0, False, 0.0, ()),
    Kept(3, '"quoted" \\ text\n\twith \u2028, \x7f and \U0001f40e, 9 %, $1 and %(rows)s', Turn.OPEN, 2**63 - 1, 9, True, 0.1, ("a", 'b"c')),
    Kept(-4, "{null}", Turn.SET_ASIDE, -(2**63), -32768, True, 1e-300, ("",)),
    Kept(2**40, "null", None, 1, 32767, False, 123456789.125),
)  # fmt: skip


@pytest.fixture(scope="module")
def url() -> str:
    return emptied(database())


@pytest.fixture
def stranger(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(target_of(url).conninfo, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE arriero.alike (task_no bigint PRIMARY KEY, output text, turn text, not_before bigint,"
            " priority smallint, taken boolean, gap_within double precision, told text)"
        )
        yield connection
        connection.execute("DROP TABLE arriero.alike")


@pytest.fixture
def session(url: str, stranger: psycopg.Connection[Any]) -> Iterator[PostgresSession]:
    target = target_of(url)
    made = PostgresSession(target, Statements(target.schema), limits=TransactionLimits(lock=1.0, statement=10.0))
    yield made
    made.close()


def write(session: PostgresSession, statement: columns.Write, rows: Sequence[Any], *, in_turn: bool) -> None:
    """All at once, or one after the other."""
    for some in [[row] for row in rows] if in_turn else [rows]:
        session.transact(lambda transaction, some=some: transaction.write(statement, some))  # type: ignore[misc]


def kept(stranger: psycopg.Connection[Any]) -> list[Kept]:
    found = stranger.execute(f"SELECT {columns.list_columns(NAMES)} FROM arriero.alike ORDER BY task_no").fetchall()
    read = msgspec.json.Decoder(tuple[str, ...]).decode
    return [
        Kept(*row[:2], row[2] and Turn(row[2]), *row[3:-1], None if row[-1] is None else read(row[-1])) for row in found
    ]


@pytest.mark.parametrize("in_turn", [True, False], ids=["one", "many"])
@pytest.mark.parametrize(
    ("statement", "rows"),
    [(INSERT, ROWS), (INSERT_DICTS, [{name: getattr(row, name) for name in NAMES} for row in ROWS])],
    ids=["structs", "dicts"],
)
def test_rows_are_kept_as_they_are_however_many_travel_together(
    session: PostgresSession,
    stranger: psycopg.Connection[Any],
    statement: columns.Write,
    rows: Sequence[Any],
    in_turn: bool,
) -> None:
    write(session, statement, rows, in_turn=in_turn)
    assert kept(stranger) == sorted(ROWS, key=lambda row: row.task_no)


@pytest.mark.parametrize("in_turn", [True, False], ids=["one", "many"])
def test_rows_are_changed_by_their_keys_however_many_travel_together(
    session: PostgresSession, stranger: psycopg.Connection[Any], in_turn: bool
) -> None:
    """Each row gets what the next one had, so that every value becomes null once and stops being it once."""
    before = (*ROWS, Kept(7, "it stays"))
    write(session, INSERT, before, in_turn=False)
    changed = [
        msgspec.structs.replace(after, task_no=row.task_no)
        for row, after in zip(ROWS, ROWS[1:] + ROWS[:1], strict=True)
    ]
    write(session, UPDATE, changed, in_turn=in_turn)
    assert kept(stranger) == sorted([*changed, before[-1]], key=lambda row: row.task_no)


@pytest.mark.parametrize("others", [0, 1], ids=["one", "many"])
@pytest.mark.parametrize("text", ["be\0fore", "\0", "\ud800"])
def test_a_text_that_cannot_be_kept_is_refused_and_nothing_is_kept(
    session: PostgresSession, stranger: psycopg.Connection[Any], text: str, others: int
) -> None:
    rows = [Kept(1, text), Kept(2)][: 1 + others]
    with pytest.raises(InvalidInput):
        write(session, INSERT, rows, in_turn=False)
    assert kept(stranger) == []
    write(session, INSERT, ROWS, in_turn=True)
    assert len(kept(stranger)) == len(ROWS)


def test_a_statement_for_one_row_is_prepared_once_whatever_the_values(session: PostgresSession) -> None:
    """A driver that told the types of integers by their sizes would have it prepared for each."""
    write(session, INSERT, ROWS, in_turn=True)
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT %'"
    assert session.get_connection().execute(prepared).fetchone() == (1,)
