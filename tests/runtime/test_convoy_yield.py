"""How long a process keeps the keys of convoys to itself: so long as others would handle them, too, not for ever."""

from arriero.runtime.ports import SystemPorts
from arriero.runtime.speculative_start import COURTESY_EVERY, COURTESY_SECONDS, KEY_SECONDS, ConvoyYield


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 100.0
        self.later: list[tuple[float, object]] = []

    def monotonic(self) -> float:
        return self.at

    def call_later(self, seconds: float, callback: object) -> None:
        self.later.append((seconds, callback))


def courtesy(clock: Clock, others: int) -> ConvoyYield:
    ports = SystemPorts()
    ports.clock = clock  # type: ignore[assignment]
    return ConvoyYield(ports, lambda: others)


def test_a_key_is_kept_for_a_while_and_for_ever_where_nobody_else_is() -> None:
    clock = Clock()
    assert not courtesy(clock, 1).should_release_key(clock.at - KEY_SECONDS + 0.001)
    assert courtesy(clock, 1).should_release_key(clock.at - KEY_SECONDS)
    assert not courtesy(clock, 0).should_release_key(clock.at - 1_000)


def test_after_it_let_a_key_go_a_process_claims_nothing_for_a_moment() -> None:
    clock = Clock()
    polite = courtesy(clock, 1)
    assert not polite.should_delay_claim(lambda: None)
    assert polite.should_release_key(0.0)
    assert polite.should_delay_claim(lambda: None)
    assert polite.should_delay_claim(lambda: None)
    assert len(clock.later) == 1  # it claims once when the moment is over
    clock.at += COURTESY_SECONDS + 0.001
    assert not polite.should_delay_claim(lambda: None)


def test_a_process_that_lets_many_keys_go_is_not_patient_all_the_time() -> None:
    clock = Clock()
    polite = courtesy(clock, 1)
    polite.should_release_key(0.0)
    clock.at += COURTESY_SECONDS + 0.01
    assert polite.should_release_key(0.0)
    assert not polite.should_delay_claim(lambda: None)
    clock.at += COURTESY_EVERY
    assert polite.should_release_key(0.0)
    assert polite.should_delay_claim(lambda: None)
