"""A primary with a synchronous standby, to try what a fail-over does.

What an operator or a cluster manager would do is done by ``promote`` and ``rebuild_standby``; between the two the new
primary has no standby and waits for none, as cluster managers have it. A commit that was acknowledged while both ran
is on both disks, so no fail-over loses it.
"""

from collections.abc import Mapping
from typing import Self
from urllib.parse import quote

from arriero.testing.postgres.binaries import USUAL
from arriero.testing.postgres.server import Server, StopMode, login

ALONE = {"synchronous_standby_names": ""}
WITH_STANDBY = {"synchronous_standby_names": "standby"}
# A standby that comes up before its primary, or loses it, looks again immediately and not after five seconds.
SETTINGS = {"wal_retrieve_retry_interval": "100ms"}


class Pair:
    """Two servers, ``primary`` and ``standby``, which change roles at each fail-over; made by ``start``."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary = primary
        self.standby = standby
        self._ports = (primary.port, standby.port)

    @classmethod
    def start(cls, version: int = USUAL, *, settings: Mapping[str, str] | None = None, durable: bool = True) -> Self:
        """Make both and wait until the standby is synchronous.

        Args: as ``Server.start``, for both alike.
        Raises: as ``Server.start``.
        """
        given = {**SETTINGS, **(settings or {}), **ALONE}
        primary = Server.start(version, settings=given, durable=durable)
        try:
            standby = Server.start(version, settings=given, durable=durable, following=primary)
        except BaseException:
            primary.stop("immediate")
            raise
        pair = cls(primary, standby)
        try:
            pair._wait_for_standby()
        except BaseException:
            pair.stop()
            raise
        return pair

    def url(self, database: str = "postgres", user: str | None = None) -> str:
        """One URL with both hosts, which leads to whichever is read-write; it stays the same over all fail-overs."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        role = login(user, self.primary.password)
        return f"postgresql://{role}@{hosts}/{quote(database, safe='')}?target_session_attrs=read-write"

    def kill_primary(self) -> None:
        """The primary's machine dies. Nobody is read-write until ``promote``."""
        self.primary.kill()

    def promote(self) -> None:
        """Make the standby the primary, whatever the other one does; returns when it is read-write.

        A primary that is alive or only paused stays read-write as well: two primaries, which is what some tests want.
        Raises: ProgramFailed - the standby was not promoted.
        """
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def rebuild_standby(self) -> None:
        """Make a new synchronous standby in the place of the one that is not primary; it is killed if it still runs.

        Commits that wait for the lost standby continue to wait, for the new one.
        Raises: ProgramFailed - it did not start or did not catch up.
        """
        self.standby.settings.update(ALONE)  # for the day on which it is promoted
        self.standby.follow(self.primary)
        self._wait_for_standby()

    def stop(self, mode: StopMode = "immediate") -> None:
        """End both and remove their folders."""
        try:
            self.standby.stop("immediate")
        finally:
            self.primary.stop(mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_for_standby(self) -> None:
        self.primary.configure(**WITH_STANDBY)
        self.primary.wait_until(
            "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming')"
            " AND current_setting('synchronous_standby_names') <> ''",
            "the standby did not become synchronous",
        )
