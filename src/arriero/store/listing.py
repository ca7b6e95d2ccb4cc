"""Lists of tasks, read in either direction and counted, by the one statement ``select_filtered`` of a store."""

BEGIN = " WHERE task_no > "
ASCENDING = "ORDER BY task_no\n"
DESCENDING = "ORDER BY task_no DESC\n"
OF_LEDGER = "ORDER BY from_ledger, task_no\n"
OF_LEDGER_DESCENDING = "ORDER BY from_ledger DESC, task_no DESC\n"


def order_newest_first(filtered: str) -> str:
    """The statement with the task submitted last first."""
    assert filtered.count(ASCENDING) + filtered.count(OF_LEDGER) == 1
    return filtered.replace(ASCENDING, DESCENDING).replace(OF_LEDGER, OF_LEDGER_DESCENDING)


def narrow_to_ledger(filtered: str, condition: str) -> str:
    """The statement for the tasks of one ledger, in an order that only the index of ledgers has: no other task is read."""
    assert filtered.count(BEGIN) == filtered.count(ASCENDING) == 1
    return filtered.replace(BEGIN, f" WHERE {condition}\n   AND task_no > ").replace(ASCENDING, OF_LEDGER)


def build_count(filtered: str) -> str:
    """The statement that counts what the other one finds, up to its limit."""
    return f"SELECT count(*) FROM (\n{filtered}\n) AS meant"
