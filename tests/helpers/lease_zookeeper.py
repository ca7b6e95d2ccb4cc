"""ZooKeeper for tests: one server in each worker, and a path of its own for each test."""

import asyncio
import shutil
import socket
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

from kazoo.client import KazooClient
from lease_providers import PROVIDERS, LeaseProvider, Unavailable
from lease_servers import ServerProcess

from arriero.leases import Lease
from arriero.leases.zookeeper import ZooKeeperLease

CLASSES = Path("/usr/share/java/zookeeper.jar")  # names the other jars that it needs
JAVA = ("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")
SUPER_SECRET = 0xB3415C00  # with which ZooKeeper makes the password of a session out of its id


def start_zookeeper(**settings: object) -> ServerProcess:
    """Start a server. ``settings`` go into its configuration. Raises Unavailable."""
    if not CLASSES.exists() or shutil.which("java") is None:
        raise Unavailable(
            "ZooKeeper is not installed; it comes with Debian's packages zookeeper and default-jre-headless"
        )

    def build_command(port: int, folder: Path) -> Sequence[str]:
        all_settings = {
            "dataDir": folder / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 500,
            "maxSessionTimeout": 60_000,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **settings,
        }
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *JAVA, "-cp", str(CLASSES), main, str(folder / "zoo.cfg")]

    return ServerProcess(build_command, lambda port: ask_server(port, "srvr").startswith("Zookeeper version"))


def ask_server(port: int, command: str) -> str:
    """The server's answer to one of its commands of four letters; empty: it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(command.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    except OSError:
        return ""


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
