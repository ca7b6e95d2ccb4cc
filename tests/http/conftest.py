"""A caller of each kind of client, inside of an attempt, and what names stand for."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from http_callers import Answer, Caller

from arriero.testing import attempt, current


@pytest.fixture(params=[False, True], ids=["plain", "async"])
def caller(request: pytest.FixtureRequest) -> Iterator[Callable[..., Caller]]:
    made: list[Caller] = []

    def make(answering: Answer | None = None, **options: Any) -> Caller:
        if answering is not None:
            options["transport"] = httpx2.MockTransport(answering)
        made.append(Caller(request.param, **options))
        return made[-1]

    with current(attempt(remaining=5.0)):
        yield make
    for one in made:
        one.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What names stand for, question by question; the last answer holds for all that follow."""
    known: dict[str, list[list[str]]] = {}

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        answers = known[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known
