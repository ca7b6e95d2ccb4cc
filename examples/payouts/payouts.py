"""A file of payouts: one task for the file, one child task for each line, at most 50 at a time.

The bank's books are one SQLite file, so that what it paid survives the processes that are killed. It pays once for a key.
"""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import arriero
from arriero import Agent, App, Attempt, Permanent, StepFailed, workflow

AT_A_TIME = 50

bank = Agent("bank", breaker=None, max_in_flight=AT_A_TIME)


@dataclass(frozen=True)
class Line:
    """One line of the file."""

    reference: str
    account: str
    cents: int


@dataclass(frozen=True)
class Report:
    """How many lines were paid, and the references of those that were refused."""

    paid: int
    refused: list[str]


def open_books() -> closing[sqlite3.Connection]:
    """Open the books of the bank."""
    books = sqlite3.connect(os.environ["PAYOUTS_BOOKS"], timeout=30, isolation_level=None)
    books.execute("PRAGMA synchronous = off")  # these books end with the example
    books.execute("CREATE TABLE IF NOT EXISTS paid (key TEXT PRIMARY KEY, reference TEXT, account TEXT, cents INTEGER)")
    return closing(books)


@bank.step
def pay(attempt: Attempt, line: Line) -> int:
    """Pay one line."""
    if not line.account.startswith("DE"):
        raise Permanent(f"account {line.account} is unknown", code="unknown_account")
    with open_books() as books:
        row = (attempt.idempotency_key, line.reference, line.account, line.cents)
        books.execute("INSERT OR IGNORE INTO paid VALUES (?, ?, ?, ?)", row)
    return line.cents


@workflow
async def pay_line(line: Line) -> int:
    """Pay one line of a file."""
    return await pay(line)


@workflow
async def pay_file(lines: list[Line]) -> Report:
    """Pay all lines. A line that is refused does not stop the others; it is resubmitted alone once it is corrected."""
    ends = await arriero.map(
        lambda line: pay_line(line).options(task_id=line.reference), lines, at_a_time=AT_A_TIME, return_exceptions=True
    )
    refused = [line.reference for line, end in zip(lines, ends, strict=True) if isinstance(end, StepFailed)]
    return Report(len(lines) - len(refused), refused)


app = App("payouts", agents=[bank], workflows=[pay_line, pay_file])
