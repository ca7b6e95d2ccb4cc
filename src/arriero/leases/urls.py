"""A lease by the URL of its provider: the scheme says which provider it is, which is loaded only then."""

import importlib
import os
from typing import Any

from ..errors import InvalidInput, describe_install
from ..text.escaping import mask_url
from .contract import Lease
from .store import StoreLease

SCHEMES = (
    "sqlite:///PATH, postgresql://HOST/DATABASE, azure+https://ACCOUNT.blob.core.windows.net/CONTAINER,"
    " zookeeper://HOST/PATH, etcd+http://HOST/PREFIX, nats://HOST:4222/BUCKET"
)


def open_lease(url: str, name: str) -> Lease:
    """Make a lease of that name at the provider of that URL; nothing is opened yet.

    Args:
        url: sqlite:///PATH or postgresql://HOST/DATABASE, for a lease in a state store;
            azure+https://ACCOUNT.blob.core.windows.net/CONTAINER, with the credentials in the environment;
            nats://HOST:4222/BUCKET or nats+tls://HOST:4222/BUCKET, the same;
            zookeeper://HOST:PORT,HOST:PORT/PATH; etcd+http://HOST:PORT,HOST:PORT/PREFIX or etcd+https://. Who has to log in
            sets ARRIERO_ZOOKEEPER_USER and ARRIERO_ZOOKEEPER_PASSWORD, or ARRIERO_ETCD_USER and ARRIERO_ETCD_PASSWORD.
        name: of the lease, as the provider allows it.
    Raises: InvalidInput - an unknown scheme, or the provider's extra is not installed; LeaseRefused - a name that the
        provider does not take.
    """
    scheme = url.partition(":")[0].partition("+")[0] if isinstance(url, str) else ""
    if scheme in ("sqlite", "postgresql", "postgres"):
        return open_store_lease(url, name)
    if scheme == "azure":
        azure: Lease = load_provider(scheme).AzureBlobLease(url, name)
        return azure
    if scheme == "nats":
        nats: Lease = load_provider(scheme).NatsLease(url, name)
        return nats
    if scheme in ("zookeeper", "etcd"):
        variables = (f"ARRIERO_{scheme.upper()}_{part}" for part in ("USER", "PASSWORD"))
        lease: Lease = load_provider(scheme).open_lease_at(url, name, *(os.environ.get(one, "") for one in variables))
        return lease
    shown = mask_url(url).partition("?")[0] if isinstance(url, str) else url  # a query may hold a credential
    raise InvalidInput(f"no lease can be kept at {shown!r}; URLs are {SCHEMES}")


def load_provider(provider: str) -> Any:
    """Import the module of a provider. Raises InvalidInput - its extra is not installed."""
    try:
        return importlib.import_module(f"{__package__}.{provider}")
    except ImportError as error:
        raise InvalidInput(
            f"a lease at {provider} needs a package that is not installed: {describe_install(provider)}"
        ) from error


def open_store_lease(url: str, name: str) -> StoreLease:
    """Make a lease in a store that each of its connections opens and closes. Raises InvalidInput, LeaseRefused."""
    from ..store import open_store

    open_store(url)  # refuses a URL that is none
    return StoreLease(lambda: open_store(url), name, is_shared=False)
