"""A batch with commands that cannot be written: the others are written once, and each is told what became of it alone."""

from collections.abc import Sequence

import pytest

from arriero.errors import ArrieroError, InvalidInput, StoreError
from arriero.store.postgres.store import in_halves

UNFIT = frozenset("x")
LOCKED = frozenset("l")


class Store:
    """Writes batches of letters: refuses unfit ones, splits before locked ones, and loses the connection at lost ones."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, batch: Sequence[str]) -> list[str | ArrieroError]:
        """As a store does: what is locked is met before what is unfit is looked at."""
        if LOCKED & set(batch):
            if len(batch) == 1:
                return [StoreError("locked")]
            return in_halves(batch, self.write, lambda error: error)
        if UNFIT & set(batch):
            raise InvalidInput(f"unfit in {''.join(batch)}")
        if "-" in batch:
            raise StoreError("the connection is lost")
        self.written += batch
        return list(batch)


def _told(answers: Sequence[str | ArrieroError]) -> list[str]:
    return [answer if isinstance(answer, str) else str(answer) for answer in answers]


@pytest.mark.parametrize(
    "batch, told, written",
    [
        ("abcd", ["a", "b", "c", "d"], "abcd"),
        ("ablx", ["a", "b", "locked", "unfit in x"], "ab"),
        ("xlab", ["unfit in x", "locked", "a", "b"], "ab"),
        ("labx", ["locked", "a", "b", "unfit in x"], "ab"),
        ("labcdxe", ["locked", "a", "b", "c", "d", "unfit in x", "e"], "abcde"),
        ("lxx", ["locked", "unfit in x", "unfit in x"], ""),
    ],
)
def test_what_is_unfit_is_found_and_the_others_are_written_once_and_told_so(
    batch: str, told: list[str], written: str
) -> None:
    store = Store()
    assert _told(in_halves(batch, store.write, lambda error: error)) == told
    assert "".join(store.written) == written


def test_a_half_whose_connection_is_lost_is_told_so_and_the_other_half_is_told_of_its_commit() -> None:
    store = Store()
    lost = "the connection is lost"
    assert _told(in_halves("ab-c", store.write, lambda error: error)) == ["a", "b", lost, lost]
    assert "".join(store.written) == "ab"


def test_what_each_is_told_of_an_error_is_the_caller_s_to_say() -> None:
    told = in_halves("xa-b", Store().write, lambda error: type(error).__name__)
    assert told == ["InvalidInput", "a", "StoreError", "StoreError"]


def test_what_nobody_thought_of_in_one_half_is_told_to_whoever_is_to_blame_alone() -> None:
    store = Store()

    def write(batch: Sequence[str]) -> list[str | ArrieroError]:
        if "o" in batch:
            raise OverflowError("too large")
        return store.write(batch)

    assert _told(in_halves("abco", write, lambda error: error)) == [
        "a", "b", "c", "it could not be written: OverflowError('too large')"
    ]  # fmt: skip
    assert "".join(store.written) == "abc"
