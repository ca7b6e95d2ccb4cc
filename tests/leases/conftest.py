"""The contract suite runs on each provider that this machine has."""

from collections.abc import AsyncIterator
from pathlib import Path

import lease_azure  # noqa: F401  # it adds its provider
import lease_etcd  # noqa: F401 - adds to PROVIDERS
import lease_nats  # noqa: F401  # the same
import lease_zookeeper  # noqa: F401 - the same
import pytest
from lease_providers import PROVIDERS, LeaseProvider

from arriero.leases import Lease, LeaseConnection
from lab.lease_servers import Unavailable


@pytest.fixture(params=sorted(PROVIDERS))
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LeaseProvider]:
    try:
        async with PROVIDERS[request.param](tmp_path) as opened:
            yield opened
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def lease(provider: LeaseProvider, request: pytest.FixtureRequest) -> Lease:
    """A lease that no other test has."""
    return provider.lease(f"lease-{abs(hash(request.node.nodeid))}")


@pytest.fixture
async def left(lease: Lease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection


@pytest.fixture
async def right(lease: Lease) -> AsyncIterator[LeaseConnection]:
    async with lease.connected() as connection:
        yield connection
