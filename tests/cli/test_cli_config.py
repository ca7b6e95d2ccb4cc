"""`arriero config`, and the store that commands find through the settings."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_calls import APP, Call, json_lines, order

from arriero.config import SETTINGS

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PLANTED = 'app = App("planted", store="sqlite:///planted.db")'


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)


def wrote(folder: Path, text: str) -> Path:
    file = folder / "arriero.toml"
    file.write_text(text)
    return file


def by_name(text: str) -> dict[str, Any]:
    return {line["name"]: (line["value"], line["origin"]) for line in json_lines(text)}


def test_it_prints_one_aligned_line_per_setting(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = wrote(shop, "[node]\nlease_seconds = 5\n[alerts]\nlog = false")
    monkeypatch.setenv("ARRIERO_ROLES", "agents,scheduler")
    done = call("config", "--all", "--store", "sqlite:///option.db")
    assert (done.exit_code, done.stderr) == (0, "")
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["name", "value", "origin"]
    at = header.index("value"), header.index("origin")
    cells = {line[: at[0]].strip(): (line[at[0] : at[1]].strip(), line[at[1] :]) for line in lines}
    assert list(cells) == [setting.path for setting in SETTINGS]
    assert cells["store"] == ("sqlite:///option.db", "--store")
    assert cells["roles"] == ('["scheduler","agents"]', "ARRIERO_ROLES")
    assert cells["node.lease_seconds"] == ("5", str(file))
    assert cells["alerts.log"] == ("false", str(file))
    assert cells["app"] == ('""', "default")


def test_as_json_it_prints_one_object_per_setting(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = wrote(shop, "store = 'sqlite:///shop.db'\n[alerts]\ncommand = ['notify', '--urgent']")
    monkeypatch.setenv("ARRIERO_TASKS_MAX", "7")
    done = call("config", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line["name"] for line in json_lines(done.stdout)] == [setting.path for setting in SETTINGS]
    found = by_name(done.stdout)
    assert found["store"] == (f"sqlite:///{shop}/shop.db", str(file))
    assert found["alerts.command"] == (["notify", "--urgent"], str(file))
    assert found["node.tasks_max"] == (7, "ARRIERO_TASKS_MAX")
    assert found["node.poll_seconds"] == (0.05, "default")
    assert found["alerts.log"] == (True, "default")


def test_the_secret_is_masked_in_both_forms(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_ALERTS_WEBHOOK_URL", "https://alerts.example/")
    monkeypatch.setenv("ARRIERO_ALERTS_WEBHOOK_SECRET", SECRET)
    plain, as_json = call("config"), call("config", "--json")
    for done in (plain, as_json):
        assert (done.exit_code, done.stderr) == (0, "")
        assert SECRET.removeprefix("whsec_") not in done.stdout
    assert "whsec_...  " in plain.stdout
    assert by_name(as_json.stdout)["alerts.webhook_secret"] == ("whsec_...", "ARRIERO_ALERTS_WEBHOOK_SECRET")
    assert by_name(as_json.stdout)["alerts.webhook_url"][0] == "https://alerts.example/"


def test_an_unknown_variable_is_told_on_standard_error_and_the_rest_printed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_STOER", "sqlite:///x.db")
    monkeypatch.setenv("ARRIERO_CRASH_AT", "before_commit:1000000")
    done = call("config", "--json")
    assert done.exit_code == 0
    assert len(json_lines(done.stdout)) == len(SETTINGS)
    assert done.stderr == ("arriero: ARRIERO_STOER is not a setting and changes nothing; did you mean ARRIERO_STORE?\n")


def test_no_other_command_tells_of_unknown_variables(sold: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_STOER", "sqlite:///x.db")
    assert sold("task", "list").stderr == ""


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[node]\nlease = 3", "{file}: node.lease is not known; did you mean node.lease_seconds?"),
        ("[node]\nlease_seconds = '3'", "{file}: node.lease_seconds is '3'; it must be a number of seconds"),
        ("[node]\npoll_seconds = 3", "node.poll_seconds 3 ({file}) and node.lease_seconds 3 (default) cannot work"),
        ("store", "{file}: it is not TOML: "),
        ('"a\\nb" = 3', "{file}: a b is not known; "),
        ("[alerts]\nwebhook_secret = 'sesame'", "{file}: alerts.webhook_secret is not shown here; it must be whsec_"),
    ],
)
@pytest.mark.parametrize("command", [["config"], ["config", "--json"], ["task", "list"], ["export"]], ids=" ".join)
def test_a_wrong_file_ends_any_command_with_one_line_and_2(
    call: Call, shop: Path, command: list[str], text: str, part: str
) -> None:
    file = wrote(shop, text)
    refused = call(*command)
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith('{"type":' if "--json" in command else "arriero: ")
    assert part.format(file=file) in (json.loads(line)["detail"] if "--json" in command else line)


def test_an_empty_variable_ends_any_command_with_one_line_and_2(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_STORE", "")
    for command in (["config"], ["task", "list"], ["submit", APP, "fulfil", "--arguments", order("1")]):
        refused = call(*command)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("arriero: ARRIERO_STORE is empty; unset it, or give it the URL")


def test_a_store_whose_name_is_no_text_is_printed_all_the_same(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///\udcff.db")
    assert "sqlite:///\\udcff.db" in call("config").stdout
    assert by_name(call("config", "--json").stdout)["store"][0] == "sqlite:///\\udcff.db"


# --- the store that commands work on
def test_commands_find_the_store_of_the_file_from_every_folder_below_it(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote(shop, "store = 'sqlite:///shared.db'")
    (shop / "below").mkdir()
    assert call("submit", APP, "fulfil", "--arguments", order("1"), "--task-id", "one").exit_code == 0
    monkeypatch.chdir(shop / "below")
    monkeypatch.syspath_prepend(str(shop))
    assert call("submit", APP, "fulfil", "--arguments", order("2"), "--task-id", "two").exit_code == 0
    assert [task["id"] for task in json_lines(call("task", "list", "--json").stdout)] == ["two", "one"]
    assert list((shop / "below").iterdir()) == []
    assert not (shop / "arriero.db").exists()


def test_the_option_then_the_environment_come_before_the_file(
    sold: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote(shop, "store = 'sqlite:///nowhere.db'")
    missing = sold("task", "list")
    assert missing.stderr.startswith(f"arriero: store {shop}/nowhere.db: there is no such file")
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///arriero.db")
    assert len(json_lines(sold("task", "list", "--json").stdout)) == 6
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///nowhere_else.db")
    assert len(json_lines(sold("task", "list", "--json", "--store", "sqlite:///arriero.db").stdout)) == 6


def test_a_store_in_memory_is_of_no_use_to_a_command(call: Call, shop: Path) -> None:
    wrote(shop, "store = 'memory://'")
    assert call("config").exit_code == 0
    assert "dies with it" in call("task", "list").stderr


def planted(shop: Path, text: str = PLANTED) -> Path:
    """An App of its own store, named in the file; a folder below, from which it is found all the same."""
    (shop / "planted.py").write_text(f"from arriero import App\n{text}\n")
    wrote(shop, "app = 'planted:app'")
    (shop / "below").mkdir()
    return shop / "below"


@pytest.fixture
def forget() -> Iterator[None]:
    """The next test plants another module under the same name."""
    yield
    sys.modules.pop("planted", None)


def test_the_configured_app_s_own_store_comes_before_the_default_only(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch, forget: None
) -> None:
    monkeypatch.chdir(planted(shop))
    assert by_name(call("config", "--json").stdout)["store"] == ("sqlite:///planted.db", "App(store=)")
    assert f"{shop}/below/planted.db: there is no such file" in call("task", "list").stderr
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///environment.db")
    assert by_name(call("config", "--json").stdout)["store"] == ("sqlite:///environment.db", "ARRIERO_STORE")


def test_a_configured_app_without_a_store_leaves_the_default(call: Call, shop: Path, forget: None) -> None:
    planted(shop, 'app = App("planted")')
    assert by_name(call("config", "--json").stdout)["store"] == ("sqlite:///arriero.db", "default")


def test_a_configured_app_that_cannot_be_loaded_is_named_with_its_origin(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch, forget: None
) -> None:
    planted(shop, "1 / 0")
    refused = call("task", "list")
    assert refused.exit_code == 2
    assert f"app planted:app ({shop}/arriero.toml) cannot be loaded: module planted cannot be" in refused.stderr
    monkeypatch.setenv("ARRIERO_APP", "nowhere:app")
    assert "app nowhere:app (ARRIERO_APP) cannot be loaded: there is no module 'nowhere'" in call("config").stderr
    assert call("config", "--store", "sqlite:///x.db").exit_code == 0  # then nobody needs it


def test_the_option_s_help_names_every_place_of_the_store(call: Call) -> None:
    shown = " ".join(call("config", "--help").stdout.split())
    for place in ("ARRIERO_STORE", "arriero.toml", "App's", "default"):
        assert place in shown


def test_only_what_differs_from_the_defaults_is_shown_unless_all_is_asked_for(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("config").stdout == f"{len(SETTINGS)} settings have their defaults (--all lists them)\n"
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///here.db")
    head, store, rest = call("config").stdout.splitlines()
    assert (head.split(), store.split()[:2]) == (["name", "value", "origin"], ["store", "sqlite:///here.db"])
    assert rest == f"{len(SETTINGS) - 1} settings have their defaults (--all lists them)"
    assert len(call("config", "--all").stdout.splitlines()) == len(SETTINGS) + 1
