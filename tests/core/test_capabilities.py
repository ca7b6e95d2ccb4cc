"""A capability is read by the store that made it alone, and an older one without an App still is."""

from core_rows import NOW

from arriero.core.capabilities import Capability, read_capability, seal_capability

SECRET = b"s" * 32
MADE = Capability("here", "shipping", "order-1", 5, 1, 3, NOW, NOW, "shop")


def test_a_capability_is_read_as_it_was_made() -> None:
    assert read_capability(seal_capability(MADE, SECRET), SECRET, "here") == MADE


def test_a_capability_of_another_store_is_refused_although_both_have_one_secret() -> None:
    """A store that was copied under another id has the secret of the first."""
    assert read_capability(seal_capability(MADE, SECRET), SECRET, "elsewhere") is None
