"""The table that workers fill and the leader sums up: one SQLite file, with the guard on the sum.

A guard is needed because a leader may freeze between its read and its write. When it wakes up, another one has gathered the
same parts, and a write without a guard would count them twice.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import arriero
from arriero import Leadership, LeadershipLost
from arriero.leases.store import StoreLease

TABLES = """
CREATE TABLE part (number INTEGER PRIMARY KEY, value INTEGER NOT NULL, is_gathered INTEGER NOT NULL DEFAULT 0);
CREATE TABLE total (value INTEGER NOT NULL, term INTEGER NOT NULL, goal INTEGER);
CREATE TABLE writing (number INTEGER PRIMARY KEY, term INTEGER NOT NULL);
INSERT INTO total VALUES (0, 0, NULL);
"""
BATCH = 20


def compute(number: int) -> int:
    """What a worker computes: a part of the sum."""
    return sum(value * value for value in range(100 * number, 100 * number + 100))


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose transactions may be guarded by a lease in the same file."""
    return arriero.connect(f"sqlite:///{path}")


def make(path: Path) -> None:
    """Make the tables in a file that arriero may use as a store, too."""
    connection = connect(path)
    connection.executescript(TABLES)
    connection.close()


def may_be_written(path: Path) -> bool:
    """Return True if a transaction can begin within a second: no process keeps the lock of the file."""
    with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


async def add_part(path: Path) -> bool:
    """Compute the next part and keep it. Returns False if no more parts are wanted."""
    async with arriero.transaction(f"sqlite:///{path}") as connection:
        (goal,) = connection.execute("SELECT goal FROM total").fetchone()
        if goal is not None:
            return False
        (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM part").fetchone()
        connection.execute("INSERT INTO part (number, value) VALUES (?, ?)", (last + 1, compute(last + 1)))
    return True


def begin_term(connection: sqlite3.Connection, leadership: Leadership) -> None:
    """Keep the term, before the first read under it.

    Else a leader of an earlier term, whose term is the largest that was seen, could still write what this one has read
    already. Raises LeadershipLost - the term is past.
    """
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        _guard(connection, leadership)


def read_parts(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Parts that are not in the sum yet."""
    return connection.execute(f"SELECT number, value FROM part WHERE NOT is_gathered LIMIT {BATCH}").fetchall()


def gather(
    connection: sqlite3.Connection, leadership: Leadership, parts: list[tuple[int, int]], *, is_guarded: bool
) -> None:
    """Add parts to the sum, in one transaction. Raises LeadershipLost - the term is past, and nothing is written."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # it commits, or rolls back
        if is_guarded:
            _guard(connection, leadership)
        connection.execute("UPDATE total SET value = value + ?", (sum(value for _, value in parts),))
        connection.executemany("UPDATE part SET is_gathered = 1 WHERE number = ?", [(number,) for number, _ in parts])
        connection.execute("INSERT INTO writing (term) VALUES (?)", (leadership.term,))


def _guard(connection: sqlite3.Connection, leadership: Leadership) -> None:
    if isinstance(leadership.lease, StoreLease):
        arriero.guarded_sync(connection, leadership)
        return
    # The lease is kept elsewhere: the largest term that was seen stands beside the rows, and a smaller one is refused.
    statement = "UPDATE total SET term = ? WHERE term <= ?"
    if connection.execute(statement, (leadership.term, leadership.term)).rowcount != 1:
        raise LeadershipLost(f"term {leadership.term} is past")


def is_done(connection: sqlite3.Connection) -> bool:
    """Returns True if no part will come any more, and all are in the sum."""
    (goal,) = connection.execute("SELECT goal FROM total").fetchone()
    return goal is not None and not read_parts(connection)


def set_goal(connection: sqlite3.Connection) -> int:
    """Let the parts that are there be all. Returns their number."""
    with connection:
        connection.execute("UPDATE total SET goal = (SELECT count(*) FROM part)")
    return int(connection.execute("SELECT goal FROM total").fetchone()[0])


def read_total(connection: sqlite3.Connection) -> int:
    """The sum as it stands."""
    return int(connection.execute("SELECT value FROM total").fetchone()[0])


def read_writing_terms(connection: sqlite3.Connection) -> list[int]:
    """The terms of all accepted writes, in the order of their commits."""
    return [int(term) for (term,) in connection.execute("SELECT term FROM writing ORDER BY number")]
