"""Who may put a command next: so many at once, high ranks soon, and nobody waits for ever."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.runtime.admission_queue import AdmissionQueue
from arriero.store.contract import Unwritten


class Road:
    """What is on its way, with a line before it."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.on_the_way: list[str] = []
        self.went: list[str] = []  # in the order they came through
        self.most = 0
        self.line = AdmissionQueue(lambda: self.places - len(self.on_the_way))
        self.all: list[asyncio.Task[None]] = []

    async def _go(self, name: str, rank: int, key: str | None) -> None:
        await self.line.enter(rank, key)
        self.on_the_way.append(name)
        self.went.append(name)
        self.most = max(self.most, len(self.on_the_way))

    def send(self, *names: str, rank: int = 5, key: str | None = None) -> Sequence[asyncio.Task[None]]:
        self.all += (sent := [asyncio.create_task(self._go(name, rank, key)) for name in names])
        return sent

    async def arrive(self) -> None:
        """All that is on its way arrives; whoever may go now has gone when this returns."""
        await turns()
        self.on_the_way.clear()
        self.line.admit()
        await turns()


async def turns() -> None:
    """Let everybody come to their turn who has something to do."""
    for _ in range(5):
        await asyncio.sleep(0)


async def full_road() -> Road:
    """With one place, which is taken."""
    road = Road(1)
    road.send("under way")
    await turns()
    return road


async def with_two_in_line() -> tuple[Road, asyncio.Task[None]]:
    """A full road, and the one that waits before ``next``."""
    road = await full_road()
    first, _ = road.send("gives up", "next")
    await turns()
    return road, first


async def test_with_room_nobody_waits() -> None:
    entering = Road(2).line.enter(5)
    with pytest.raises(StopIteration):  # at once, without a turn of the event loop
        entering.send(None)


async def test_never_more_are_on_their_way_than_may_be() -> None:
    road = Road(3)
    road.send(*map(str, range(20)))
    for _ in range(7):
        await road.arrive()
    assert road.went == list(map(str, range(20)))
    assert road.most == 3


async def test_of_two_places_one_goes_to_the_highest_rank_and_one_to_whoever_waited_longest() -> None:
    road = Road(2)
    road.send("first", "second")
    await turns()
    road.send("a", "b", rank=1)
    road.send("c", "d", rank=5)
    road.send("e", "f", "g", rank=9)
    await road.arrive()
    assert road.went[2:] == ["e", "a"]
    await road.arrive()
    assert road.went[4:] == ["f", "b"]
    await road.arrive()
    assert road.went[6:] == ["g", "c"]


async def test_of_one_key_nobody_passes_whoever_waits_whatever_their_ranks() -> None:
    road = await full_road()
    road.send("low", rank=1, key="k")
    road.send("a", "b", "c", rank=5)
    road.send("high", rank=9, key="k")
    road.send("alone", rank=9, key="l")
    for _ in range(7):
        await road.arrive()
    assert road.went[1] == "alone"
    assert road.went.index("low") < road.went.index("high")
    assert not road.line._keys
    road.send("later", rank=9, key="k")
    await road.arrive()
    assert road.went[-1] == "later"


async def test_the_low_one_comes_through_while_high_ones_never_cease() -> None:
    road = await full_road()
    road.send("low", rank=0)
    for number in range(4):
        road.send(f"high {number}", rank=9)
        await road.arrive()
    assert "low" in road.went


async def test_who_comes_as_others_are_let_go_does_not_pass_them() -> None:
    road = await full_road()
    road.send("earlier")
    await turns()
    road.on_the_way.clear()
    road.places = 2
    road.send("later")
    road.line.admit()  # the later one has its first turn before the earlier one has its next
    await turns()
    assert road.went == ["under way", "earlier", "later"]


async def test_a_place_of_somebody_who_gives_up_as_it_is_called_goes_to_the_next() -> None:
    road, gives_up = await with_two_in_line()
    road.on_the_way.clear()
    road.line.admit()
    gives_up.cancel()
    await turns()
    assert road.went == ["under way", "next"]


async def test_somebody_who_gave_up_in_the_line_is_not_waited_for() -> None:
    road, gives_up = await with_two_in_line()
    gives_up.cancel()
    road.on_the_way.clear()
    road.line.admit()  # before the one that was cancelled has had its turn
    await turns()
    assert road.went == ["under way", "next"]
    assert not road.line._waiting


async def test_somebody_whose_place_was_never_used_holds_up_nobody_who_comes_later() -> None:
    road = await full_road()
    waits = asyncio.create_task(road.line.enter(5))  # and then puts nothing
    road.send("behind")
    await road.arrive()
    assert waits.done()
    road.send("later")
    await road.arrive()
    assert road.went == ["under way", "behind", "later"]


async def test_when_it_is_closed_all_go_in_the_order_they_came_and_nobody_else_comes_in() -> None:
    road = await full_road()
    road.send("a", rank=1)
    road.send("b", rank=9)
    road.send("c", rank=5)
    await turns()
    await road.line.close()
    assert road.went == ["under way", "a", "b", "c"]
    with pytest.raises(Unwritten, match="being closed"):
        await road.line.enter(5)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["come", "arrive", "give up"])), max_size=60),
    st.integers(1, 4),
)
def test_whatever_happens_nobody_is_left_behind_and_each_rank_keeps_its_order(
    moves: list[tuple[int, str]], places: int
) -> None:
    async def play() -> None:
        road = Road(places)
        came: dict[int, list[str]] = {}
        given_up: set[str] = set()
        for number, (rank, move) in enumerate(moves):
            if move == "come":
                name = f"{rank} {number}"
                came.setdefault(rank, []).append(name)
                road.send(name, rank=rank)[0].set_name(name)
            elif move == "arrive":
                await road.arrive()
            elif road.all:
                given = road.all[number % len(road.all)]
                if given.cancel():
                    given_up.add(given.get_name())
        while len(road.went) < len(road.all) - len(given_up - set(road.went)):
            await road.arrive()
        assert road.most <= places
        for rank, names in came.items():
            assert [name for name in road.went if name in names] == [n for n in names if n in road.went], rank
        await asyncio.gather(*road.all, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 60))
