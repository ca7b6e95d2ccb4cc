"""Free places are divided by weight, and none stays free that somebody wants."""

from random import Random

from arriero.core.capacity import divide_room


def test_places_are_divided_by_weight() -> None:
    assert divide_room(8, {"fulfil": 3, "report": 1}, {}) == {"fulfil": 6, "report": 2}


def test_what_is_held_counts() -> None:
    assert divide_room(4, {"fulfil": 3, "report": 1}, {"report": 10}) == {"fulfil": 4, "report": 0}
    assert divide_room(2, {"fulfil": 3, "report": 1}, {"fulfil": 6, "report": 1}) == {"fulfil": 1, "report": 1}


def test_nobody_who_wants_a_place_gets_none_for_ever() -> None:
    held = {"fulfil": 0, "report": 0}
    for _ in range(8):  # one place at a time, and nothing ends
        for name, places in divide_room(1, {"fulfil": 3, "report": 1}, held).items():
            held[name] += places
    assert held == {"fulfil": 6, "report": 2}


def test_all_places_are_given_and_each_is_within_one_of_its_weight_when_nothing_is_held() -> None:
    random = Random(4)
    for _ in range(300):
        weights = {f"w{number}": random.randint(1, 9) for number in range(random.randint(1, 5))}
        room = random.randrange(60)
        granted = divide_room(room, weights, {})
        assert sum(granted.values()) == room
        least = min(granted[name] / weight for name, weight in weights.items())
        assert all((granted[name] - 1) / weight <= least for name, weight in weights.items())


def test_without_anybody_or_without_room_nothing_is_given() -> None:
    assert divide_room(5, {}, {}) == {}
    assert divide_room(0, {"a": 1}, {}) == {"a": 0}
    assert divide_room(-3, {"a": 1}, {}) == {"a": 0}
