"""A caller of each kind of client, inside of an attempt."""

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
