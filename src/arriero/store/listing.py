"""Lists of tasks, read in either direction and counted, by the one statement ``select_filtered`` of a store."""

ASCENDING = "ORDER BY task_no\n"
DESCENDING = "ORDER BY task_no DESC\n"


def order_newest_first(filtered: str) -> str:
    """The statement with the task submitted last first."""
    assert filtered.count(ASCENDING) == 1
    return filtered.replace(ASCENDING, DESCENDING)


def build_count(filtered: str) -> str:
    """The statement that counts what the other one finds, up to its limit."""
    return f"SELECT count(*) FROM (\n{filtered}\n) AS meant"
