"""Calling the command line from tests: `arriero run` and others as processes, and what they print."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import Result

SECONDS_MAX = 60  # when a process counts as hanging; nothing waits so long otherwise
APP = "shopfront:app"

Call = Callable[..., Result]


class Run:
    """`arriero run`, or another ``command`` that runs until a signal, in a process of its own."""

    def __init__(self, folder: Path, *options: str, target: str = APP, command: Sequence[str] = ()) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "arriero", *(command or ("run", target)), *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(SECONDS_MAX, self._child.kill)
        self._watchdog.start()

    def until(self, part: str) -> str:
        """Its next line of output that holds the text."""
        assert self._child.stdout is not None
        said: list[str] = []
        for line in self._child.stdout:
            said.append(line)
            if part in line:
                return line.strip()
        assert self._child.stderr is not None
        errors = self._child.stderr.read()
        raise AssertionError(f"it ended with {self._child.wait()}, never saying {part!r}, but {said} and {errors!r}")

    @property
    def process_number(self) -> int:
        return self._child.pid

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, and what else it said on both outputs."""
        output, errors = self._child.communicate(timeout=SECONDS_MAX)
        return self._child.returncode, output, errors

    def close(self) -> None:
        self._watchdog.cancel()
        self._child.kill()
        self._child.communicate()


def arriero(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "arriero", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def order(order_id: str, pieces: int = 1) -> str:
    """``--arguments`` for a workflow that takes an order."""
    return json.dumps({"order": {"id": order_id, "pieces": pieces}})


def json_lines(text: str) -> list[Any]:
    """Standard output, line by line."""
    return [json.loads(line) for line in text.splitlines()]


class DiskUsage(NamedTuple):
    """As ``shutil.disk_usage`` says it, in bytes."""

    total: int
    used: int
    free: int


def disk_usage(*, total: int, free: int) -> DiskUsage:
    return DiskUsage(total, total - free, free)


class Terminal:
    """The command line in a process whose standard input and error are a terminal; its output is a pipe."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._keyboard, screen = os.openpty()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "arriero", *arguments],
            cwd=folder,
            stdin=screen,
            stdout=subprocess.PIPE,
            stderr=screen,
            text=True,
        )
        os.close(screen)
        self._watchdog = threading.Timer(SECONDS_MAX, self._child.kill)
        self._watchdog.start()
        self._said = ""

    def until(self, part: str) -> str:
        """All that it said on the terminal, once it said that."""
        while part not in self._said:
            assert self._read(), f"it ended with {self._child.wait()}, never saying {part!r}, but {self._said!r}"
        return self._said

    def _read(self) -> bool:
        try:
            read = os.read(self._keyboard, 10_000)
        except OSError:  # so it is on Linux, once nobody has the other side open
            return False
        self._said += read.decode()
        return bool(read)

    def type(self, line: str) -> None:
        os.write(self._keyboard, f"{line}\n".encode())

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, its output, and all that it said on the terminal."""
        output, _ = self._child.communicate(timeout=SECONDS_MAX)
        while self._read():
            pass
        self._watchdog.cancel()
        os.close(self._keyboard)
        return self._child.returncode, output, self._said
