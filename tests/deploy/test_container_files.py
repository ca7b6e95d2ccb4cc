"""Image, compose file and unit name only what exists, agree with each other, and are closed by default."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from deploy_commands import (
    CHART,
    DEPLOY,
    DOCKER,
    PAGE,
    ROOT,
    SETTING,
    find_mistake,
    list_page_commands,
    read_instruction,
    read_yaml,
)

from arriero.config import VARIABLES

COMPOSE = read_yaml(DOCKER / "compose.yaml")
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "postgres"}
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
UNIT = DEPLOY / "systemd" / "arriero.service"
PORT = int(VARIABLES["ARRIERO_HTTP_PORT"].default)
EXTRAS = ("server", "postgres", "prometheus", "otel", "http")
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def read_pins(name: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / "requirements" / name).read_text(encoding="utf-8")))


def list_commands() -> dict[str, list[str]]:
    unit = re.findall(r"^ExecStart=\S+/arriero (.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    pages = list_page_commands(PAGE.read_text(encoding="utf-8"))
    return {
        "Dockerfile": read_instruction("CMD"),
        **{f"compose {name}": service["command"] for name, service in OURS.items()},
        **{f"unit {line}": shlex.split(line) for line in unit},
        **{f"page {shlex.join(words)}": words for words in pages},
    }


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in list_commands().items()])
def test_a_command_has_only_options_and_roles_that_exist(words: list[str]) -> None:
    assert find_mistake(words) == ""


@pytest.mark.parametrize(
    "words",
    [["runs"], ["run", "--role", "http"], ["run", "--roles", "worker"], ["token", "make", "ci"]],
    ids=shlex.join,
)
def test_a_command_that_does_not_exist_is_found(words: list[str]) -> None:
    assert find_mistake(words)


@pytest.mark.parametrize("path", [*FILES, PAGE], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_names_only_settings_that_exist(path: Path) -> None:
    assert set(SETTING.findall(path.read_text(encoding="utf-8"))) - set(VARIABLES) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_holds_no_password_and_no_key(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    written = re.findall(r"://[^\s:/@]+:([^\s@]+)@", text)
    assert [found for found in written if found not in {"...", "PASSWORD"}] == []
    assert re.findall(r"arriero_[0-9a-f]{16}_[0-9A-Za-z]{49}|whsec_[A-Za-z0-9+/]{16}|PRIVATE KEY", text) == []


def test_the_image_copies_only_what_its_context_has() -> None:
    sources = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    kept = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "requirements/server.txt" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in kept, source
    assert "*" in kept


def test_the_image_installs_each_extra_by_hash_at_the_versions_that_the_tests_use() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins, tested = read_pins("server.txt"), read_pins("test.txt")
    for extra in EXTRAS:
        for wanted in extras[extra]:
            name = re.split(r"[\[>=<]", wanted)[0]
            assert name in pins, f"{extra}: {name}"
    assert {name: pins[name] for name in pins if pins[name] != tested.get(name)} == {}
    text = (ROOT / "requirements" / "server.txt").read_text()
    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")
    for line in re.findall(r"pip install ([^\\&]*)", DOCKERFILE):
        assert "--no-deps" in line or ("--require-hashes" in line and "--only-binary :all:" in line), line


def test_the_image_runs_arriero_itself_as_a_user_with_a_number_that_is_not_root() -> None:
    assert read_instruction("ENTRYPOINT") == ["arriero"]
    assert read_instruction("CMD")[0] == "run"
    users = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert users == ["10001:10001"]
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    assert f"runAsUser: {users[0].split(':')[0]}" in helpers
    assert "apt-get" not in DOCKERFILE
    assert "STOPSIGNAL SIGTERM" in DOCKERFILE


def test_everybody_names_the_same_port() -> None:
    assert re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE) == [str(PORT)]
    assert COMPOSE["services"]["http"]["environment"]["ARRIERO_HTTP_PORT"] == str(PORT)
    assert COMPOSE["services"]["http"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert read_yaml(CHART / "values.yaml")["http"]["port"] == PORT
    assert f'"ARRIERO_HTTP_PORT", "{PORT}"' in (DOCKER / "healthcheck.py").read_text()


def test_only_the_loopback_of_the_host_leads_into_compose() -> None:
    assert {name for name, service in COMPOSE["services"].items() if "ports" in service} == {"http"}
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert COMPOSE["services"]["postgres"]["networks"] == ["store"]


def test_the_http_process_of_compose_has_a_certificate_from_a_secret() -> None:
    http = COMPOSE["services"]["http"]
    for variable in ("ARRIERO_HTTP_TLS_CERT", "ARRIERO_HTTP_TLS_KEY"):
        folder, _, name = http["environment"][variable].rpartition("/")
        assert folder == "/run/secrets"
        assert name in http["secrets"]
        assert COMPOSE["secrets"][name]["file"].startswith("secrets/")
    assert "secrets/" in (DOCKER / ".gitignore").read_text().split()


@pytest.mark.parametrize("service", OURS.values(), ids=list(OURS))
def test_a_container_of_compose_may_write_nothing_and_gain_nothing(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["image"].startswith("${IMAGE:?")


def test_processes_start_after_the_migration_and_have_time_to_drain() -> None:
    for name in ("worker", "http"):
        assert OURS[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        assert OURS[name]["restart"] == "unless-stopped"
    assert OURS["worker"]["stop_grace_period"] == "120s"
    assert OURS["http"]["stop_grace_period"] == "60s"
    assert OURS["worker"]["deploy"] == {"replicas": 2}
    assert OURS["migrate"]["restart"] == "no"


def test_only_the_migration_knows_the_owner_of_the_schema() -> None:
    assert {name for name, service in OURS.items() if "secrets/owner.env" in service["env_file"]} == {"migrate"}


def test_only_who_serves_is_asked_for_its_health() -> None:
    assert "http" in read_instruction("CMD")[2].split(",")
    assert read_instruction("HEALTHCHECK")[1] == "/opt/arriero/healthcheck.py"
    for name, service in OURS.items():
        serves = "http" in service["command"][-1].split(",")
        assert serves != service.get("healthcheck", {}).get("disable", False), name


# Tags, which somebody may move to another image. Whoever builds or deploys can give each one with its digest; see in production.
TAGS = {"PYTHON_IMAGE": "python:3.12-slim", "POSTGRES_IMAGE": "postgres:16"}


def test_each_image_is_given_by_digest_or_is_a_variable_that_can_be() -> None:
    arguments = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", DOCKERFILE, re.MULTILINE))
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    images += [service["image"] for service in COMPOSE["services"].values()]
    for image in images:
        variable = re.fullmatch(r"\$\{(\w+)(?::-(\S+))?\}", image)
        is_asked_for = image.startswith("${IMAGE:?")
        is_listed = variable is not None and TAGS.get(variable[1]) == (variable[2] or arguments.get(variable[1]))
        assert is_asked_for or is_listed or re.search(r"@sha256:[0-9a-f]{64}$", image), image
    page = PAGE.read_text(encoding="utf-8")
    for name, tag in TAGS.items():
        assert name in page, name
        assert tag in page, tag


def test_no_password_is_a_word_of_a_command_line() -> None:
    script = (DOCKER / "postgres-init.sh").read_text(encoding="utf-8")
    commands = script.split("<<'SQL'")[0].splitlines()
    assert [line for line in commands if "$SHOP_PASSWORD" in line] == []
    assert "\\getenv password SHOP_PASSWORD\n" in script
