"""The health check of the image, asking real servers that were started as compose starts them."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import APP, Run, arriero
from deploy_commands import DOCKER, read_yaml
from server_certificates import write_certificate

CHECK = DOCKER / "healthcheck.py"
HTTP = read_yaml(DOCKER / "compose.yaml")["services"]["http"]


def check_health() -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True, timeout=60, check=False)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.acceptance
def test_the_http_process_of_compose_starts_with_a_token_alone_is_healthy_and_drains(
    shop: Path, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = write_certificate(shop)
    port = str(find_free_port())
    given = {"ARRIERO_HTTP_PORT": port, "ARRIERO_HTTP_TLS_CERT": str(chain), "ARRIERO_HTTP_TLS_KEY": str(key)}
    for name, value in {**HTTP["environment"], **given, "ARRIERO_APP": APP}.items():
        monkeypatch.setenv(name, value)
    refused = arriero(shop, *HTTP["command"])
    assert refused.returncode == 2
    assert "arriero token create" in refused.stderr
    assert check_health().returncode == 1
    made = arriero(shop, "token", "create", "ops", "--scope", "admin", "--by", "ana")
    assert made.returncode == 0
    run = start(command=tuple(HTTP["command"]))
    run.until("ready:")
    healthy = check_health()
    assert (healthy.returncode, healthy.stderr) == (0, "")
    run.signal(signal.SIGTERM)
    assert run.ended()[0] == 0
    gone = check_health()
    assert gone.returncode == 1
    assert f"no answer from 127.0.0.1:{port}" in gone.stderr


@pytest.mark.acceptance
def test_a_server_on_the_containers_own_loopback_is_asked_without_tls(
    shop: Path, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_HTTP_PORT", str(find_free_port()))
    start(command=("serve", APP)).until("ready:")
    healthy = check_health()
    assert (healthy.returncode, healthy.stderr) == (0, "")
