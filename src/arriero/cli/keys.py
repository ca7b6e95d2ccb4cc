"""Keys from a terminal: bytes in, names of keys out; and the terminal's mode in which each key comes alone."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ESCAPE_SECONDS = 0.05  # after which an escape that nothing followed is the key, and not the beginning of another one
READ_MAX = 1_024  # bytes at a time; what is pasted comes in several parts
KEYS_WAITING_MAX = 1_000  # others are dropped: nobody types so fast

UP, DOWN, LEFT, RIGHT, HOME, END = "up", "down", "left", "right", "home", "end"
PAGE_UP, PAGE_DOWN, ENTER, ESCAPE, TAB, BACK_TAB, ERASE, INTERRUPT = (
    "page-up", "page-down", "enter", "escape", "tab", "back-tab", "erase", "interrupt",
)  # fmt: skip

_SEQUENCES = {
    b"[A": UP, b"[B": DOWN, b"[C": RIGHT, b"[D": LEFT, b"[H": HOME, b"[F": END, b"[1~": HOME, b"[4~": END,
    b"OA": UP, b"OB": DOWN, b"OC": RIGHT, b"OD": LEFT, b"OH": HOME, b"OF": END,
    b"[5~": PAGE_UP, b"[6~": PAGE_DOWN, b"[Z": BACK_TAB,
}  # fmt: skip
_CONTROLS = {b"\r": ENTER, b"\n": ENTER, b"\t": TAB, b"\x7f": ERASE, b"\x08": ERASE, b"\x03": INTERRUPT}


def read_keys(data: bytes, *, is_last: bool) -> tuple[list[str], bytes]:
    """Read the keys in some bytes.

    Args:
        data: as the terminal sent them; with what a call before has left over in front.
        is_last: nothing follows for now: what is not complete is read as it stands.
    Returns: names of keys, or the characters that they write; and the bytes at the end that are not complete yet. A sequence that
        is not known gives no key.
    """
    keys: list[str] = []
    while data:
        length = _measure_key(data)
        if not length:
            if not is_last:
                return keys, data
            length = 1 if data[:1] == b"\x1b" else len(data)
        one, data = data[:length], data[length:]
        keys += _name_key(one)
    return keys, b""


def _measure_key(data: bytes) -> int:
    """The number of bytes of the first key; 0: it is not complete."""
    first = data[0]
    if first == 0x1B:
        return _measure_sequence(data)
    length = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    return length if len(data) >= length else 0


def _measure_sequence(data: bytes) -> int:
    if len(data) == 1:
        return 0
    if data[1:2] == b"O":
        return 3 if len(data) >= 3 else 0
    if data[1:2] != b"[":
        return 1  # the escape itself; what follows is another key
    for at in range(2, len(data)):
        if 0x40 <= data[at] <= 0x7E:
            return at + 1
    return 0


def _name_key(one: bytes) -> list[str]:
    if one == b"\x1b":
        return [ESCAPE]
    if one[:1] == b"\x1b":
        return [_SEQUENCES[one[1:]]] if one[1:] in _SEQUENCES else []
    if one in _CONTROLS:
        return [_CONTROLS[one]]
    text = one.decode(errors="ignore")
    return [text] if text.isprintable() and text else []


class KeyReader:
    """Reads keys from a terminal while the event loop runs. Use it inside of ``listen``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self._timer: asyncio.TimerHandle | None = None
        self.keys: asyncio.Queue[str] = asyncio.Queue(KEYS_WAITING_MAX)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Put the terminal into the mode in which each key comes alone and unseen; its mode is restored at the end."""
        import termios
        import tty

        loop = asyncio.get_running_loop()
        before = termios.tcgetattr(self._fd)
        try:
            tty.setcbreak(self._fd)
            loop.add_reader(self._fd, self._read)
            yield
        finally:
            loop.remove_reader(self._fd)
            if self._timer is not None:
                self._timer.cancel()
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_MAX)
        except OSError:  # the window was closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._keep([INTERRUPT])
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        keys, self._rest = read_keys(self._rest + data, is_last=False)
        self._keep(keys)
        if self._rest:
            self._timer = asyncio.get_running_loop().call_later(ESCAPE_SECONDS, self._end)

    def _end(self) -> None:
        self._timer = None
        keys, self._rest = read_keys(self._rest, is_last=True)
        self._keep(keys)

    def _keep(self, keys: list[str]) -> None:
        for key in keys:
            if not self.keys.full():
                self.keys.put_nowait(key)


def may_read_keys() -> bool:
    """Returns True if standard input is a terminal that can be put into another mode."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        import termios  # noqa: F401  # not on Windows
    except ImportError:
        return False
    return True
