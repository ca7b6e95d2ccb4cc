"""A server of etcd on a free port, ended with its process."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import httpx2

from arriero.testing.postgres.binaries import free_port

from .process import ServerProcess
from .unavailable import Unavailable


def start_etcd() -> ServerProcess:
    """Start a server. Raises Unavailable."""
    if shutil.which("etcd") is None:
        raise Unavailable("etcd is not installed; run: RUNLEVEL=1 apt-get install etcd-server")
    peers = f"http://127.0.0.1:{free_port()}"

    def build_command(port: int, folder: Path) -> Sequence[str]:
        url = f"http://127.0.0.1:{port}"
        options = {
            "data-dir": folder / "data",
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "heartbeat-interval": 50,
            "election-timeout": 250,
        }
        return ["etcd", "--unsafe-no-fsync", *(f"--{name}={value}" for name, value in options.items())]

    return ServerProcess(build_command, _is_ready)


def _is_ready(port: int) -> bool:
    try:
        health: object = httpx2.get(f"http://127.0.0.1:{port}/health", trust_env=False).json()
        return health == {"health": "true"}
    except httpx2.HTTPError:
        return False
