"""The command line in a process whose input and output are a terminal: keys go in, and what stands on the screen comes out."""

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

from cli_calls import SECONDS_MAX

_FRAME = "\x1b[H"  # with it the cursor goes home, and all is drawn again
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")


class LiveTerminal:
    """``arriero`` with these arguments on a terminal of that size. It is killed if it hangs."""

    def __init__(
        self, folder: Path, *arguments: str, columns: int = 100, lines: int = 30, **environment: str | None
    ) -> None:
        self._keyboard, screen = os.openpty()
        self.resize(columns, lines)
        given = {**os.environ, "TERM": "xterm-256color", **environment}
        for name in ("COLUMNS", "LINES", *(name for name, value in environment.items() if value is None)):
            given.pop(name, None)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "arriero", *arguments],
            cwd=folder,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env=given,  # type: ignore[arg-type]  # those without a value were left out
            start_new_session=True,
        )
        os.close(screen)
        self._watchdog = threading.Timer(SECONDS_MAX, self._child.kill)
        self._watchdog.start()
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in parts

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size, as a terminal does."""
        fcntl.ioctl(self._keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if hasattr(self, "_child"):
            self._child.send_signal(signal.SIGWINCH)

    @property
    def frame(self) -> str:
        """The text that was drawn since the cursor went home last, without colours."""
        return _CONTROL.sub("", self.written.rpartition(_FRAME)[2]).replace("\r", "")

    def until(self, *parts: str, columns: int = 10_000) -> str:
        """The frame, once it holds all these texts and is at most that wide."""
        while any(part not in self.frame for part in parts) or max(map(len, self.frame.splitlines())) > columns:
            ended = f"it ended with {self._child.poll()}, never showing {parts!r}, but\n{self.written!r}"
            assert self._read(), ended
        return self.frame

    def until_drawn(self, part: str) -> None:
        """Wait until it writes this text from now on, as a whole."""
        before = len(self.written)
        while part not in _CONTROL.sub("", self.written[before:]).replace("\r", ""):
            assert self._read(), (
                f"it ended with {self._child.poll()}, never drawing {part!r}, but {self.written[before:]!r}"
            )

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._keyboard, keys.encode())

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C."""
        self._child.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._child.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and all that it wrote without colours, once it has ended."""
        while self._read():
            pass
        code = self._child.wait(SECONDS_MAX)
        return code, _CONTROL.sub("", self.written).replace("\r", "")

    @property
    def lines(self) -> list[str]:
        """All lines that it ever drew, without colours."""
        return re.split(r"[\r\n]+", _CONTROL.sub("", self.written))

    def is_as_before(self) -> bool:
        """Returns True if the terminal shows what is typed, and takes it line by line."""
        modes = termios.tcgetattr(self._keyboard)[3]
        return bool(modes & termios.ECHO) and bool(modes & termios.ICANON)

    def close(self) -> None:
        self._watchdog.cancel()
        self._child.kill()
        self._child.wait()
        os.close(self._keyboard)

    def _read(self) -> bool:
        """Read what comes next. Returns False at the end."""
        ready, _, _ = select.select([self._keyboard], [], [], SECONDS_MAX)
        if not ready:
            return False
        try:
            read = os.read(self._keyboard, 100_000)
        except OSError:  # so it is on Linux, once nobody has the other side open
            return False
        self.written += self._decoder.decode(read)
        return bool(read)
