"""The process that `hostile.py` attacks: an App with all its roles and the HTTP API, plain and with TLS, that does `w1`.

python hostile_server.py FOLDER LEASE_SECONDS

It prints a line of JSON with its ports and a token, and then answers each line of its input with a line of JSON:
`work SECONDS` with the throughput of `w1`, `figures` with its leases and its memory. It ends when its input ends.
"""

import asyncio
import json
import logging
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from arriero_app import app, finish, nap, warm_up
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from arriero.config import load_configuration
from arriero.runtime.settings import Settings
from arriero.server.service import HttpService

TASKS = 500  # submitted at once
ASLEEP = "asleep"  # the id of a task that does not end


class LeaseWatch:
    """Counts lapses of the process's lease: renewals that came later than a lease after the one before, or were refused."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._last_at = time.monotonic()
        self.lapses = 0
        self.longest = 0.0
        self._renew = app.session.store.renew
        app.session.store.renew = self._note  # type: ignore[method-assign]

    async def _note(self, *args: Any) -> Any:
        answer = await self._renew(*args)
        now = time.monotonic()
        gap, self._last_at = now - self._last_at, now
        self.longest = max(self.longest, gap)
        self.lapses += gap > self._lease_seconds or not answer.renewed
        return answer


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return chain, private


def build_services(folder: Path) -> list[HttpService]:
    """Build a service without TLS and one with it."""
    chain, key = map(str, write_certificate(folder))
    with_tls = {"ARRIERO_HTTP_TLS_CERT": chain, "ARRIERO_HTTP_TLS_KEY": key}
    return [
        HttpService(
            app,
            load_configuration(environment={"ARRIERO_HTTP_PORT": "0", **more}, folder=folder),
            folder / "arriero.token",
        )
        for more in ({}, with_tls)
    ]


async def work(seconds: float) -> dict[str, float]:
    """Do `w1` again and again for a time. ``per_cpu``: tasks in a second of this process's processor time."""
    started_at, spent_at, ended = time.monotonic(), time.process_time(), 0
    while time.monotonic() - started_at < seconds:
        await finish(TASKS)
        ended += TASKS
    return {
        "throughput": ended / (time.monotonic() - started_at),
        "per_cpu": ended / (time.process_time() - spent_at),
    }


def read_memory() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def main(folder: Path, lease_seconds: float) -> None:
    """Serve until the input ends."""
    url = os.environ.get("BENCH_STORE_URL", f"sqlite:///{folder}/store.db")
    app.session.settings = Settings(lease_seconds=lease_seconds)
    async with app.running(store=url):
        await warm_up()
        await app.submit(nap(0, 86_400.0), task_id=ASLEEP)
        token = await app.tokens.create("attacker", scopes=["submit", "read"], by="bench")
        services = build_services(folder)
        for service in services:
            await service.start()
        watch = LeaseWatch(lease_seconds)
        ports = [int(service.address.rpartition(":")[2]) for service in services]
        answer: dict[str, Any] = {"ports": ports, "token": token.token}
        while True:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
            command, *arguments = (await asyncio.to_thread(sys.stdin.readline)).split() or ["end"]
            if command == "work":
                answer = await work(float(arguments[0]))
            elif command == "figures":
                answer = {"lapses": watch.lapses, "longest": watch.longest, "memory": read_memory()}
                watch.longest = 0.0
            else:
                break
        for service in services:
            await service.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
