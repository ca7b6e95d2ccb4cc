"""ZooKeeper for tests: one server in each worker, and a path of its own for each test."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

from kazoo.client import KazooClient
from lease_providers import PROVIDERS, LeaseProvider

from arriero.leases import Lease
from arriero.leases.zookeeper import ZooKeeperLease
from lab.lease_servers.process import ServerProcess
from lab.lease_servers.zookeeper import ask_server, start_zookeeper

SUPER_SECRET = 0xB3415C00  # with which ZooKeeper makes the password of a session out of its id


@cache
def shared_zookeeper() -> ServerProcess:
    """The worker's server, which no test stops. Raises Unavailable."""
    return start_zookeeper()


class ZooKeeperProvider(LeaseProvider):
    """Leases in one server, below a path of their own."""

    duration = 20.0  # no test waits for its end; of a shorter one a request has less time than a busy machine may take
    bad_name = "a/b"

    def __init__(self, server: ServerProcess) -> None:
        self.hosts = f"127.0.0.1:{server.port}"
        self.base = f"/test-{uuid.uuid4().hex}"

    def lease(self, name: str) -> ZooKeeperLease:
        return ZooKeeperLease(self.hosts, name, base=self.base)

    def unreachable(self, name: str) -> ZooKeeperLease:
        return ZooKeeperLease("127.0.0.1:1", name)

    async def lapse(self, lease: Lease) -> None:
        """End the holder's session, as the server itself does when it saw no sign of life for its time."""
        assert isinstance(lease, ZooKeeperLease)
        await asyncio.to_thread(self.end_session, f"{lease.base}/{lease.name}")

    def end_session(self, path: str) -> None:
        """End the session of the first contender below a path."""
        with self.client() as client:
            first = min(client.get_children(path), key=lambda node: node[-10:])
            session = client.exists(f"{path}/{first}").ephemeralOwner
        with self.client(client_id=(session, build_password(session))):
            """Who closes a session ends it for all of its connections."""

    def count_requests(self) -> int:
        """How many packets the server got, in all."""
        lines = ask_server(int(self.hosts.partition(":")[2]), "mntr").splitlines()
        (received,) = (line.split()[1] for line in lines if line.startswith("zk_packets_received"))
        return int(received)

    @contextmanager
    def client(self, **options: object) -> Iterator[KazooClient]:
        """A client of kazoo, as anybody may use it."""
        client = KazooClient(self.hosts, **options)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


def build_password(session: int) -> bytes:
    """The password of a session, as ZooKeeper draws it: 16 bytes of Java's generator of random numbers."""
    state = ((session ^ SUPER_SECRET) ^ 0x5DEECE66D) & (2**48 - 1)
    drawn = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (2**48 - 1)
        drawn += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return drawn


@asynccontextmanager
async def open_zookeeper_provider(folder: Path) -> AsyncIterator[LeaseProvider]:
    """A provider for one test. Raises Unavailable."""
    yield ZooKeeperProvider(shared_zookeeper())


PROVIDERS["zookeeper"] = open_zookeeper_provider
