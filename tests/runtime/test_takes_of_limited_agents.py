"""When a Take of an Agent with limits is worth it: not while its room is used up, unless something is new."""

import asyncio
from typing import Any

import msgspec

from arriero import Agent, Concurrent
from arriero.model.agents import BreakerRow, BreakerState
from arriero.model.answers import LimitedAgent, Taken
from arriero.runtime.call_monitor import CallCounter
from arriero.runtime.hosted_agent import USED_UP_SECONDS, HostedAgent
from arriero.runtime.process_context import ProcessContext
from arriero.runtime.request_taker import RequestTaker
from arriero.runtime.settings import Settings
from arriero.store.contract import Unwritten
from arriero.testing.clock import VirtualClock

USED_UP = LimitedAgent("payments", is_full=True, is_used_up=True, has_rate=False, next_in=None)
ROOM_FOR_OTHER_KEYS = LimitedAgent("payments", is_full=True, is_used_up=False, has_rate=False, next_in=None)
USED_UP_RATE = LimitedAgent("payments", is_full=True, is_used_up=True, has_rate=True, next_in=0.2)


class Takes:
    """An Agent with limits as a process knows it, and how often requests were asked for."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.count = 0
        common: Any = {"store": None, "ports": self, "committer": self, "settings": Settings()}
        context = ProcessContext(**common, actor="here", app="shop")
        context.trusted_until = float("inf")
        self.hosted: dict[str, HostedAgent] = {}
        nothing: Any = lambda *_: None  # noqa: E731
        self.taker = RequestTaker(
            context, self.hosted, siblings={}, find_suspect=nothing, on_taken=nothing, on_answered=nothing
        )
        self.limits = self.hosted["payments"] = HostedAgent(
            Agent("payments", limits=[Concurrent(2)]),
            context,
            CallCounter("shop", 1),
            take_soon=self.take,
            take_in_next_turn=self.taker.take_in_next_turn,
        )

        self.answer: Taken | Unwritten = Unwritten("no answer")

    def put(self, command: Any, on_answer: Any) -> None:
        self.count += 1
        on_answer(self.answer)

    def take(self) -> None:
        self.limits.has_backlog = True
        self.taker.take_soon()

    def learn(self, found: LimitedAgent) -> None:
        self.limits.learn_limits(found, has_got=False)


def test_polls_do_not_ask_while_the_room_is_used_up_and_ask_again_after_a_while() -> None:
    takes = Takes()
    takes.take()
    takes.learn(USED_UP)
    takes.take()
    assert takes.count == 1
    takes.clock.jump_to(takes.clock.monotonic() + USED_UP_SECONDS)
    takes.take()
    assert takes.count == 2


def test_polls_ask_twice_a_second_for_what_may_not_begin_here_and_at_once_after_news() -> None:
    takes = Takes()
    takes.limits.without_url = frozenset({"charge"})
    for _ in range(3):
        takes.take()
        takes.limits.learn_limits(None, has_got=False)
    assert takes.count == 1
    takes.limits.note_waiting()
    assert takes.count == 2
    takes.limits.learn_limits(None, has_got=True)
    takes.take()
    assert takes.count == 3


def test_polls_ask_while_other_keys_have_room() -> None:
    takes = Takes()
    takes.learn(ROOM_FOR_OTHER_KEYS)
    takes.take()
    assert takes.count == 1


async def test_a_slot_that_becomes_free_here_is_asked_for_at_once() -> None:
    takes = Takes()
    takes.learn(USED_UP)
    takes.limits.reserve("charge", 5)
    takes.take()  # a poll in the same turn of the event loop
    assert takes.count == 0
    await asyncio.sleep(0)
    assert takes.count == 1


def test_news_while_a_take_is_under_way_outlives_its_answer() -> None:
    takes = Takes()
    takes.take()
    takes.limits.note_news()
    takes.learn(USED_UP)
    takes.take()
    assert takes.count == 2


def wait_for_rate(seconds: float) -> Taken:
    return Taken((), limited=(msgspec.structs.replace(USED_UP_RATE, next_in=seconds),))


def test_a_rate_that_lets_the_next_call_through_is_asked_for_then() -> None:
    takes = Takes()
    takes.answer = wait_for_rate(0.2)
    takes.take()
    takes.clock.jump_to(takes.clock.monotonic() + 0.2)
    assert takes.count == 2


def test_an_answer_with_a_longer_wait_does_not_postpone_the_next_take() -> None:
    takes = Takes()
    began_at = takes.clock.monotonic()
    takes.answer = wait_for_rate(0.2)
    takes.take()
    takes.clock.jump_to(began_at + 0.1)
    takes.answer = wait_for_rate(5.0)
    takes.limits.note_news()
    takes.take()
    assert takes.count == 2
    takes.clock.jump_to(began_at + 0.2)
    assert takes.count == 3


def test_what_a_probe_writes_while_a_take_is_answered_is_kept() -> None:
    breakers = Takes().limits.breakers
    of_probe = breakers.known  # which it holds while it asks the store
    breakers.learn([])
    of_probe["shop", "payments", ""] = opened = BreakerRow(app="shop", agent="payments", state=BreakerState.OPEN)
    assert breakers.find_whole("shop") is opened
