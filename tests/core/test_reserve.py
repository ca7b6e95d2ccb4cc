"""Places kept for urgent work: others never use them, and no place stays free that somebody may use."""

from random import Random

from arriero.core.capacity import Room, compute_room, is_urgent


def test_priorities_8_and_9_are_urgent() -> None:
    assert [priority for priority in range(10) if is_urgent(priority)] == [8, 9]


def test_without_a_reserve_every_free_place_is_open_to_all() -> None:
    assert compute_room(places=10, reserved=0, used=4, used_by_others=3) == Room(6, 0)


def test_when_others_use_all_that_is_not_reserved_only_urgent_work_has_room() -> None:
    assert compute_room(places=10, reserved=2, used=8, used_by_others=8) == Room(0, 2)


def test_urgent_work_in_reserved_places_takes_nothing_from_others() -> None:
    assert compute_room(places=10, reserved=2, used=2, used_by_others=0) == Room(8, 0)


def test_whatever_begins_and_ends_others_never_use_reserved_places_and_urgent_work_may_use_all() -> None:
    random = Random(3)
    for _ in range(500):
        places = random.randint(2, 12)
        reserved = random.randrange(places)
        used = others = 0
        for _ in range(60):
            room = compute_room(places=places, reserved=reserved, used=used, used_by_others=others)
            assert room.open + room.urgent == places - used
            assert room.open == min(places - used, places - reserved - others)
            move = random.choice(["urgent", "other", "urgent ends", "other ends"])
            if move == "urgent" and room.open + room.urgent:
                used += 1
            elif move == "other" and room.open:
                used, others = used + 1, others + 1
            elif move == "urgent ends" and used > others:
                used -= 1
            elif move == "other ends" and others:
                used, others = used - 1, others - 1
            assert others <= places - reserved and used <= places


def test_more_in_use_than_there_are_places_leaves_no_room() -> None:
    assert compute_room(places=2, reserved=1, used=3, used_by_others=3) == Room(0, 0)
