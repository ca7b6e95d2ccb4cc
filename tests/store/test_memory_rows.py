"""The memory store puts dicts in place of SQL: each method of ``store.sql`` that asks a database has one of its own."""

from collections.abc import Iterator
from types import FunctionType

from arriero.store.memory import MemoryStore
from arriero.store.sql.agent_rows import CommandRows
from arriero.store.sql.store_rows import StoreRows, SubmissionRows

ASKING = {"ask", "ask_plain", "ask_shared", "ask_of_agents", "_ask_steps", "_first_column"}
# What only other methods of SQL call.
PARTS = ASKING | {"ask_breakers_of", "ask_limits", "_send_waiting_keys"}


def _list_asking() -> Iterator[tuple[str, FunctionType]]:
    for rows in (StoreRows, CommandRows, SubmissionRows):
        for family in rows.__mro__:
            for name, method in vars(family).items():
                if isinstance(method, FunctionType) and ASKING.intersection(method.__code__.co_names):
                    yield name, method


def test_the_memory_store_asks_no_database() -> None:
    asking = dict(_list_asking())
    assert len(asking) > 50
    left = [name for name, method in asking.items() if getattr(MemoryStore, name) is method and name not in PARTS]
    assert left == []
