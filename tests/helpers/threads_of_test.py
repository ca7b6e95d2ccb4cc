"""Threads of arriero that a test has begun; those that other tests have left, for reasons of theirs, do not count."""

import threading

OF_THE_PROCESS = "arriero-watchdog"


class NewThreads:
    """Threads that began after this was made."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def names(self) -> list[str]:
        names = [thread.name for thread in threading.enumerate() if thread not in self._before]
        return [name for name in names if name.startswith("arriero") and name != OF_THE_PROCESS]
