"""Rule for callers who do not read their answer: the connection of one who takes too little in a while is cut off."""

STALL_SECONDS_MAX = 15.0
STALL_BYTES_MIN = 4_096  # taken within it; one who takes a byte now and then would hold a connection for ever


class WriteProgress:
    """Progress of a caller in taking what its connection was sent."""

    def __init__(self) -> None:
        self._taken = 0
        self._since: float | None = None  # None: nothing waits to be sent

    def has_stalled(self, taken: int, pending: int, now: float) -> bool:
        """Look at a connection; to be called about once a second.

        Args:
            taken: bytes that the system has taken for the caller, since the connection began.
            pending: bytes that wait to be taken.
            now: seconds of a monotonic clock.
        """
        if pending == 0:
            self._since = None
        elif self._since is None or taken - self._taken >= STALL_BYTES_MIN:
            self._taken, self._since = taken, now
        return self._since is not None and now - self._since >= STALL_SECONDS_MAX
