"""Keys from a terminal: what bytes mean, also when they come in parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.cli.keys import read_keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", ["page-up", "page-down", "home", "end", "home", "end"]),
        (b"\t\x1b[Z\r\n\x7f\x08\x03", ["tab", "back-tab", "enter", "enter", "erase", "erase", "interrupt"]),
        ("né日🙂".encode(), ["n", "é", "日", "🙂"]),
        (b"\x1b", ["escape"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1b[1;5A\x1b[24~x", ["x"]),
        (b"\x00\x01\xff\xfe", []),
    ],
)
def test_bytes_are_read_as_keys(data: bytes, keys: list[str]) -> None:
    assert read_keys(data, is_last=True) == (keys, b"")


@pytest.mark.parametrize("data", [b"\x1b[A", b"\x1bOB", "日".encode(), "🙂".encode(), b"\x1b[5~"])
def test_a_key_that_comes_in_parts_is_one_key(data: bytes) -> None:
    whole, _ = read_keys(data, is_last=True)
    for at in range(1, len(data)):
        keys, rest = read_keys(data[:at], is_last=False)
        assert (keys, rest) == ([], data[:at])
        assert read_keys(rest + data[at:], is_last=False) == (whole, b"")


@given(st.binary(max_size=40), st.booleans())
def test_no_bytes_make_the_reading_of_keys_fail(data: bytes, is_last: bool) -> None:
    keys, rest = read_keys(data, is_last=is_last)
    assert not (is_last and rest)
    assert data.endswith(rest)
    assert all((len(key) == 1 and key.isprintable()) or len(key) > 1 for key in keys)
