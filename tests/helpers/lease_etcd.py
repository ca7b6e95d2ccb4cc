"""etcd for tests: one server in each worker, and a prefix of its own for each test."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from lease_providers import PROVIDERS, LeaseProvider

from arriero.leases import Lease
from arriero.leases.etcd import EtcdLease
from lab.lease_servers.etcd import start_etcd
from lab.lease_servers.process import ServerProcess


@cache
def shared_etcd() -> ServerProcess:
    """The worker's server, which no test stops. Raises Unavailable."""
    return start_etcd()


class EtcdProvider(LeaseProvider):
    """Leases in one server, below a prefix of their own."""

    duration = 20.0  # no test waits for its end; of a shorter one a request has less time than a busy machine may take
    bad_name = "a/b"

    def __init__(self, server: ServerProcess) -> None:
        self.url = f"http://127.0.0.1:{server.port}"
        self.prefix = f"/test-{uuid.uuid4().hex}"

    def lease(self, name: str) -> EtcdLease:
        return EtcdLease(self.url, name, prefix=self.prefix)

    def unreachable(self, name: str) -> EtcdLease:
        return EtcdLease("http://127.0.0.1:1", name)

    async def lapse(self, lease: Lease) -> None:
        """Revoke etcd's lease, as etcd itself does when its time has passed."""
        assert isinstance(lease, EtcdLease)
        (holder,) = self.ask("kv/range", {"key": f"{lease.prefix}/{lease.name}/holder".encode()})["kvs"]
        self.ask("lease/revoke", {"ID": holder["lease"]})

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Ask the gateway as anybody may."""
        answer = httpx2.post(f"{self.url}/v3/{path}", content=msgspec.json.encode(body), trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def count_leases(self) -> int:
        """How many leases etcd has, of all tests together."""
        return len(self.ask("lease/leases", {}).get("leases", []))


@asynccontextmanager
async def open_etcd_provider(folder: Path) -> AsyncIterator[LeaseProvider]:
    """A provider for one test. Raises Unavailable."""
    yield EtcdProvider(shared_etcd())


PROVIDERS["etcd"] = open_etcd_provider
