"""Configuration: which place wins, what each place may say, and what is refused with the name of the setting."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero import InvalidInput
from arriero.config import CONFLICTS, SETTINGS, Configuration, load_configuration, unknown_variables
from arriero.config.values import COUNT_MAX, SECRET_MASKED, format_setting, mask_value
from arriero.model import Verb
from arriero.runtime.crash_points import VARIABLE as CRASH_VARIABLE
from arriero.runtime.settings import DEFAULT_ROLES, Settings

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
URL = "https://alerts.example/arriero"
BY_NAME = {setting.name: setting for setting in SETTINGS}

# For each kind, by what an operator must be told: a value for the file in TOML, for the environment, and what is read.
SAID: dict[str, tuple[str, str, Any]] = {
    "store": ('"sqlite:////srv/a.db"', "sqlite:////srv/a.db", "sqlite:////srv/a.db"),
    "app": ('"shop:app"', "shop:app", "shop:app"),
    "roles": ('["supervisor", "agents"]', "supervisor, agents", ("agents", "supervisor")),
    "deployment": ('"v1.2+a"', "v1.2+a", "v1.2+a"),
    "supervise_seconds": ("1", "1", 1.0),
    "redispatch_per_second_max": ("9", "9", 9),
    "poll_seconds": ("0.5", "0.5", 0.5),
    "tasks_max": ("7", "7", 7),
    "batch_max": ("9", "9", 9),
    "lost_processes_max": ("5", "5", 5),
    **{f"approvals_{verb}": ("2", "2", 2) for verb in Verb},
    "log_format": ('"json"', "json", "json"),
    "alerts_log": ("false", "false", False),
    "metrics_tags": ('["tenant", "region"]', "tenant, region", ("tenant", "region")),
    "alerts_command": ('["notify", "--urgent"]', '["notify", "--urgent"]', ("notify", "--urgent")),
    "alerts_webhook_url": (f'"{URL}"', URL, URL),
    "public_url": (
        '"http://shop.example.com:8080/a/"',
        "http://shop.example.com:8080/a",
        "http://shop.example.com:8080/a",
    ),
    "alerts_webhook_secret": (f'"{SECRET}"', SECRET, SECRET),
    "http_host": ('"::1"', "::1", "::1"),
    "http_port": ("0", "0", 0),
    "http_unix_socket": ('"/run/a.sock"', "/run/a.sock", "/run/a.sock"),
    "http_tls_cert": ('"chain.pem"', "chain.pem", "chain.pem"),
    "http_tls_key": ('"key.pem"', "key.pem", "key.pem"),
    "http_behind_proxy": ('"X-User"', "X-User", "x-user"),
    "http_proxy_addresses": ('["10.0.0.0/24"]', "10.0.0.0/24", ("10.0.0.0/24",)),
    "http_proxy_scopes": ('["submit", "read"]', "submit,read", ("read", "submit")),
    "http_proxy_scopes_header": ('"X-Scopes"', "X-Scopes", "x-scopes"),
    "http_hosts": ('["a.example.com"]', "a.example.com", ("a.example.com",)),
    "http_origins": ('["https://a.example.com"]', "https://a.example.com", ("https://a.example.com",)),
    "http_requests_per_second_max": ("9", "9", 9),
    "http_connections_max": ("9", "9", 9),
    "http_token_requests_max": ("9", "9", 9),
    "http_token_waits_max": ("9", "9", 9),
}
PARTNER = {
    "http_tls_cert": "http_tls_key",
    "http_tls_key": "http_tls_cert",
    "http_proxy_scopes_header": "http_behind_proxy",
    "alerts_webhook_url": "alerts_webhook_secret",
    "alerts_webhook_secret": "alerts_webhook_url",
}


def said(name: str) -> tuple[str, str, Any]:
    return SAID.get(name, ("7.5", "7.5", 7.5))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def wrote(folder: Path, text: str) -> Path:
    file = folder / "arriero.toml"
    file.write_text(text)
    return file


def toml(*names: str, **values: str) -> str:
    """A file with these settings, by name, or with these values."""
    values = {**{name: said(name)[0] for name in names}, **values}
    tables: dict[str, list[str]] = {}
    for name, value in values.items():
        setting = BY_NAME[name]
        tables.setdefault(setting.about.table, []).append(f"{setting.key} = {value}")
    return "\n".join("\n".join([*([f"[{table}]"] if table else []), *lines]) for table, lines in sorted(tables.items()))


def loaded(folder: Path, **options: Any) -> Configuration:
    return load_configuration(**{"environment": {}, "folder": folder, **options})


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        loaded(folder, **options)
    return str(refused.value)


# --- the declaration
def test_every_setting_is_declared_with_all_that_is_needed_to_document_it() -> None:
    for setting in SETTINGS:
        assert setting.about.help.endswith("."), setting.name
        assert setting.about.kind.must_be, setting.name
        counts = {
            "tasks_max": "tasks",
            "batch_max": "rows",
            "redispatch_per_second_max": "attempts",
            "lost_processes_max": "processes",
            **{f"approvals_{verb}": "persons" for verb in Verb},
            "http_requests_per_second_max": "requests",
            "http_connections_max": "connections",
            "http_token_requests_max": "requests",
            "http_token_waits_max": "requests",
        }
        is_duration = re.search(r"_seconds(_max)?$", setting.name) is not None
        assert setting.about.unit == ("seconds" if is_duration else counts.get(setting.name, ""))
    for what in ("name", "path", "variable", "flag"):
        named = [getattr(setting, what) for setting in SETTINGS]
        assert len(set(named)) == len(named)


def test_every_field_but_the_file_and_the_origins_is_a_setting() -> None:
    fields = [name for name in Configuration.__struct_fields__ if name not in ("file", "origins")]
    assert sorted(setting.name for setting in SETTINGS) == sorted(fields)
    assert [setting.name for setting in SETTINGS][:2] == ["store", "app"]


def test_names_in_the_file_and_in_the_environment_follow_from_the_name() -> None:
    named = {setting.name: (setting.path, setting.variable) for setting in SETTINGS}
    assert named["store"] == ("store", "ARRIERO_STORE")
    assert named["lease_seconds"] == ("node.lease_seconds", "ARRIERO_LEASE_SECONDS")
    assert named["replies_keep_seconds"] == ("replies.keep_seconds", "ARRIERO_REPLIES_KEEP_SECONDS")
    assert named["alerts_webhook_url"] == ("alerts.webhook_url", "ARRIERO_ALERTS_WEBHOOK_URL")


def test_node_settings_are_exactly_those_of_the_runtime(folder: Path) -> None:
    of_node = {setting.name for setting in SETTINGS if setting.about.table == "node"}
    assert of_node | {"approvals_cancel", "public_url", "deployment"} == set(Settings.__struct_fields__)
    assert loaded(folder).node_settings() == Settings()
    assert loaded(folder, flags={"linger_seconds": 9}).node_settings() == Settings(linger_seconds=9)


@pytest.mark.parametrize(
    "url",
    [
        "shop.example.com",
        "ftp://shop.example.com",
        "https://ana:sesame@shop.example.com",
        "https://shop.example.com/?a=1",
        "https://shop.example.com/#a",
        "https://",
        "https://shop.example.com\n",
        "https://shop.example.com/a b",
    ],
)
def test_a_public_url_is_one_to_which_a_path_can_be_added(folder: Path, url: str) -> None:
    refused = refusal(folder, environment={"ARRIERO_PUBLIC_URL": url})
    assert "it must be an https:// or http:// URL without user, password, ? and #" in refused


# --- which place wins
def test_without_any_word_all_is_default(folder: Path) -> None:
    found = loaded(folder)
    for setting in SETTINGS:
        assert getattr(found, setting.name) == setting.default
        assert found.origin(setting.name) == "default"
    assert (found.store, found.app, found.roles, found.file) == ("sqlite:///arriero.db", "", DEFAULT_ROLES, None)
    week = 7 * 24 * 3600
    assert (found.replies_keep_seconds, found.purge_idempotency_keep_seconds) == (week, week)


def test_each_place_comes_before_the_one_above_it_in_the_list(folder: Path) -> None:
    places: list[tuple[dict[str, Any], str, str]] = [
        ({}, "sqlite:///arriero.db", "default"),
        ({"app_store": "sqlite:////app.db"}, "sqlite:////app.db", "App(store=)"),
        ({}, "sqlite:////file.db", f"{folder}/arriero.toml"),
        ({"environment": {"ARRIERO_STORE": "sqlite:////variable.db"}}, "sqlite:////variable.db", "ARRIERO_STORE"),
        ({"flags": {"store": "sqlite:////flag.db"}}, "sqlite:////flag.db", "--store"),
    ]
    options: dict[str, Any] = {}
    for more, store, origin in places:
        options |= more
        if origin.endswith(".toml"):
            wrote(folder, 'store = "sqlite:////file.db"')
        found = loaded(folder, **options)
        assert (found.store, found.origin("store")) == (store, origin)


@pytest.mark.parametrize("name", BY_NAME)
def test_each_setting_is_read_from_the_file_the_environment_and_a_flag(folder: Path, name: str) -> None:
    value = said(name)[2]
    both = [name, *([PARTNER[name]] if name in PARTNER else [])]
    file = wrote(folder, toml(*both))
    found = loaded(folder)
    assert (getattr(found, name), found.origin(name), found.file) == (value, str(file), file)
    assert type(getattr(found, name)) is type(BY_NAME[name].default)

    file.unlink()
    found = loaded(folder, environment={BY_NAME[one].variable: said(one)[1] for one in both})
    assert (getattr(found, name), found.origin(name), found.file) == (value, BY_NAME[name].variable, None)

    found = loaded(folder, flags={one: said(one)[2] for one in both})
    assert (getattr(found, name), found.origin(name)) == (value, BY_NAME[name].flag)


def test_a_flag_that_is_none_was_not_given(folder: Path) -> None:
    assert loaded(folder, flags={"store": None, "roles": None}).origins == {}


def test_the_environment_and_the_folder_of_the_process_are_read_by_themselves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ARRIERO_TASKS_MAX", "3")
    wrote(folder, toml("batch_max"))
    assert (load_configuration().tasks_max, load_configuration().batch_max) == (3, 9)


def test_a_current_folder_that_is_gone_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(InvalidInput, match="the current folder was removed"):
        load_configuration()


# --- the search for the file
def test_the_file_is_looked_for_upwards_and_the_nearest_wins(folder: Path) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    wrote(folder, toml(tasks_max="1", batch_max="1"))
    assert loaded(below).origin("tasks_max") == f"{folder}/arriero.toml"
    wrote(folder / "a", toml(tasks_max="2"))
    found = loaded(below)
    assert (found.tasks_max, found.batch_max) == (2, Settings().batch_max)  # one file is read, not both
    assert found.file == folder / "a" / "arriero.toml"


def test_a_relative_folder_is_looked_into_and_above_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a").mkdir()
    wrote(folder, toml("tasks_max"))
    monkeypatch.chdir(folder)
    assert loaded(Path("a")).origin("tasks_max") == f"{folder}/arriero.toml"


@pytest.mark.parametrize(
    ("written_as", "read_as"),
    [
        ("sqlite:///shop.db", "sqlite:///{folder}/shop.db"),
        ("sqlite:///data/shop.db", "sqlite:///{folder}/data/shop.db"),
        ("sqlite:////srv/shop.db", "sqlite:////srv/shop.db"),
        ("sqlite:///", "sqlite:///"),
        ("memory://", "memory://"),
        ("postgresql://here/shop", "postgresql://here/shop"),
    ],
)
def test_a_relative_path_in_the_file_starts_at_its_folder(folder: Path, written_as: str, read_as: str) -> None:
    (folder / "a").mkdir()
    wrote(folder, f'store = "{written_as}"')
    for place in (folder, folder / "a"):
        assert loaded(place).store == read_as.format(folder=folder)


def test_a_relative_path_from_elsewhere_is_left_to_the_current_folder(folder: Path) -> None:
    relative = "sqlite:///shop.db"
    wrote(folder, toml("tasks_max"))
    assert loaded(folder, app_store=relative).store == relative
    assert loaded(folder, environment={"ARRIERO_STORE": relative}).store == relative
    assert loaded(folder, flags={"store": relative}).store == relative


# --- a file that cannot be used
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tasks_max = 7", "tasks_max is not known; did you mean node.tasks_max?"),
        ("stoer = 'sqlite:///x'", "stoer is not known; did you mean store?"),
        ("[node]\nlease = 3", "node.lease is not known; did you mean node.lease_seconds?"),
        ("[node]\nstore = 'sqlite:///x'", "node.store is not known; did you mean store?"),
        ("[node]\nqqq = 1", "node.qqq is not known; settings of [node] are lease_seconds, poll_seconds, "),
        (
            "[qqq]\nx = 1",
            "the table [qqq] is not known; settings are store, app, roles, deployment, public_url, and the tables [node], ",
        ),
        ("[node.lease]\nx = 1", "the table [node.lease] is not known; did you mean node.lease_seconds?"),
        ('"node.tasks_max" = 7', "node.tasks_max is not known"),
        ("node = 3", "node must be a table; write its keys below [node]"),
        ("[[node]]\ntasks_max = 7", "node must be a table"),
        ("[store]\nurl = 1", "store is {'url': 1}; it must be the URL of a state store"),
        ("store = ''", "store is ''; it must be the URL of a state store"),
        ('store = "sqlite:///a\\u0000b"', "it must be the URL"),
        ("app = 'shop'", "app is 'shop'; it must be MODULE:APP"),
        ("app = ':app'", "it must be MODULE:APP"),
        ("app = 'shop:'", "it must be MODULE:APP"),
        ("app = ['shop:app']", "it must be MODULE:APP"),
        ("roles = 'scheduler'", "roles is 'scheduler'; it must be a list of some of scheduler, agents, supervisor"),
        ("roles = [1]", "it must be a list"),
        ("roles = {scheduler = true}", "it must be a list"),
        ("roles = ['boss']", "role 'boss' is not known; roles are scheduler, agents, supervisor"),
        ("roles = []", "no role was named"),
        ("[node]\nlease_seconds = '3'", "node.lease_seconds is '3'; it must be a number of seconds above 0"),
        ("[node]\nlease_seconds = true", "node.lease_seconds is True; it must be a number"),
        ("[node]\nlinger_seconds = 0", "node.linger_seconds is 0; it must be a number of seconds above 0"),
        ("[node]\nlinger_seconds = -1.5", "node.linger_seconds is -1.5"),
        ("[node]\nlinger_seconds = nan", "node.linger_seconds is nan"),
        ("[node]\nlinger_seconds = inf", "node.linger_seconds is inf"),
        (f"[node]\nlinger_seconds = 1{'0' * 400}", "it must be a number of seconds above 0, a century at most"),
        (f"[node]\ntasks_max = 0x{'f' * 9_000}", "node.tasks_max is a number too long to show; it must be a whole"),
        ("[node]\nlinger_seconds = 1979-05-27", "node.linger_seconds is datetime.date"),
        ("[node]\ntasks_max = 0", "node.tasks_max is 0; it must be a whole number from 1 to 1,000,000"),
        (f"[node]\ntasks_max = {COUNT_MAX + 1}", "it must be a whole number from 1 to 1,000,000"),
        ("[node]\ntasks_max = 1.5", "node.tasks_max is 1.5"),
        ("[node]\ntasks_max = true", "node.tasks_max is True"),
        ("[replies]\nkeep_seconds = 0", "replies.keep_seconds is 0"),
        ("[purge]\nidempotency_keep_seconds = '7d'", "purge.idempotency_keep_seconds is '7d'"),
        ("[alerts]\nlog = 1", "alerts.log is 1; it must be true or false"),
        ("[alerts]\nlog = 'yes'", "alerts.log is 'yes'; it must be true or false"),
        ("[alerts]\ncommand = 'notify --urgent'", "alerts.command is 'notify --urgent'; it must be a list of texts"),
        ("[alerts]\ncommand = ['']", "alerts.command is ['']"),
        ("[alerts]\ncommand = ['notify', 1]", "alerts.command is ['notify', 1]"),
        ('[alerts]\ncommand = ["notify", "\\u0000"]', "it must be a list of texts"),
        (f"[alerts]\ncommand = ['{'x' * 5_000}', 1]", "xxx...; it must be a list of texts"),
    ],
    ids=lambda value: value[:40],
)
def test_a_wrong_file_is_refused_with_its_path_the_key_and_the_remedy(folder: Path, text: str, part: str) -> None:
    file = wrote(folder, text)
    refused = refusal(folder)
    assert refused.startswith(f"{file}: ")
    assert file.is_absolute()
    assert part in refused
    assert len(refused) < 1_000


def test_a_file_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    (folder / "arriero.toml").write_bytes(b"\xef\xbb\xbf[http]\r\nport = 9000\r\n")
    assert loaded(folder).http_port == 9000


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"store = ", "it is not TOML: Invalid value (at"),
        (b"store = 'a'\nstore = 'b'", "it is not TOML: Cannot overwrite a value (at"),
        (b"# caf\xe9", "it is not TOML: byte 5 is not UTF-8; save it as UTF-8"),
        (b"x = " + b"[" * 100_000, "it is not TOML: "),
        (b"x = " + b"9" * 10_000, "it is not TOML: "),
    ],
    ids=["no value", "twice", "not UTF-8", "too deep", "too long"],
)
def test_a_file_that_is_no_toml_is_named_with_its_error(folder: Path, content: bytes, part: str) -> None:
    file = folder / "arriero.toml"
    file.write_bytes(content)
    refused = refusal(folder)
    assert refused.startswith(f"{file}: ")
    assert part in refused


def test_what_is_no_file_or_cannot_be_read_is_named(folder: Path) -> None:
    file = folder / "arriero.toml"
    file.mkdir()
    assert refusal(folder) == f"{file}: it is not a file; take it away, or put a file in its place"
    file.rmdir()
    os.mkfifo(file)
    assert "it is not a file" in refusal(folder)
    file.unlink()
    file.symlink_to(folder / "nowhere")
    assert refusal(folder) == f"{file}: it cannot be read: No such file or directory; mend it, or take it away"


def test_an_empty_file_says_nothing_and_is_still_named(folder: Path) -> None:
    file = wrote(folder, "")
    found = loaded(folder)
    assert (found.file, found.origins) == (file, {})


def test_empty_texts_in_the_file_turn_off_what_may_be_off(folder: Path) -> None:
    wrote(folder, 'app = ""\n[alerts]\nwebhook_url = ""\nwebhook_secret = ""\ncommand = []')
    found = loaded(folder)
    assert (found.app, found.alerts_webhook_url, found.alerts_webhook_secret, found.alerts_command) == ("", "", "", ())


# --- the environment
@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("text", ["", "  "], ids=["empty", "blank"])
def test_an_empty_variable_is_refused_with_its_name_and_the_remedy(folder: Path, name: str, text: str) -> None:
    setting = BY_NAME[name]
    refused = refusal(folder, environment={setting.variable: text})
    assert refused == f"{setting.variable} is empty; unset it, or give it {setting.about.kind.must_be}"


@pytest.mark.parametrize(
    ("variable", "text", "part"),
    [
        ("ARRIERO_LEASE_SECONDS", "fast", "is 'fast'; it must be a number of seconds above 0"),
        ("ARRIERO_LEASE_SECONDS", "nan", "is nan; it must be a number"),
        ("ARRIERO_LEASE_SECONDS", "1e999", "is inf; it must be a number"),
        ("ARRIERO_TASKS_MAX", "1.5", "is '1.5'; it must be a whole number from 1"),
        ("ARRIERO_TASKS_MAX", "-1", "is -1; it must be a whole number from 1"),
        ("ARRIERO_TASKS_MAX", "9" * 5_000, "it must be a whole number from 1"),
        ("ARRIERO_ALERTS_LOG", "maybe", "is 'maybe'; it must be true or false"),
        ("ARRIERO_ALERTS_LOG", "2", "is '2'; it must be true or false"),
        ("ARRIERO_ROLES", "scheduler,boss", "role 'boss' is not known; roles are"),
        ("ARRIERO_ROLES", ",", "no role was named"),
        (
            "ARRIERO_ALERTS_COMMAND",
            "notify --urgent",
            'it must be a list of texts, a program and its arguments, like ["',
        ),
        ("ARRIERO_ALERTS_COMMAND", '"notify"', "it must be a list of texts"),
        ("ARRIERO_ALERTS_COMMAND", '{"notify": 1}', "it must be a list of texts"),
        ("ARRIERO_ALERTS_COMMAND", '["notify", "\udcff"]', "it must be a list of texts"),
        ("ARRIERO_ALERTS_COMMAND", "[" * 100_000, "it must be a list of texts"),
        ("ARRIERO_APP", "shop", "is 'shop'; it must be MODULE:APP, like shop:app"),
    ],
    ids=lambda value: value[:40].encode("ascii", "backslashreplace").decode(),
)
def test_a_wrong_variable_is_refused_with_its_name_and_the_remedy(
    folder: Path, variable: str, text: str, part: str
) -> None:
    refused = refusal(folder, environment={variable: text})
    assert refused.startswith(f"{variable} is ")
    assert part in refused
    assert len(refused) < 1_000


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("True", True), ("false", False), ("0", False), ("FALSE", False)]
)
def test_a_flag_in_the_environment_is_true_false_1_or_0(folder: Path, text: str, value: bool) -> None:
    assert loaded(folder, environment={"ARRIERO_ALERTS_LOG": text}).alerts_log is value


def test_roles_are_read_in_any_order_and_kept_in_one(folder: Path) -> None:
    environment = {"ARRIERO_ROLES": " supervisor ,scheduler,supervisor"}
    assert loaded(folder, environment=environment).roles == ("scheduler", "supervisor")
    for given in (["agents"], ("agents",), {"agents"}, (role for role in ["agents"])):
        assert loaded(folder, flags={"roles": given}).roles == ("agents",)


def test_an_unknown_variable_is_told_and_not_refused(folder: Path) -> None:
    environment = {
        "ARRIERO_LEASE_SECOND": "1",
        "ARRIERO_RETRY_SECONDS": "1",
        "ARRIERO_NONSENSE": "1",
        "ARRIERO_STORE": "sqlite:///x.db",
        CRASH_VARIABLE: "before_commit:1",
        "PATH": "/bin",
    }
    assert loaded(folder, environment=environment).store == "sqlite:///x.db"
    assert unknown_variables(environment) == [
        "ARRIERO_LEASE_SECOND is not a setting and changes nothing; did you mean ARRIERO_LEASE_SECONDS?",
        "ARRIERO_NONSENSE is not a setting and changes nothing; unset it",
        "ARRIERO_RETRY_SECONDS is not a setting and changes nothing; did you mean ARRIERO_ALERTS_RETRY_SECONDS?",
    ]


# --- App(store=) and flags
@pytest.mark.parametrize("value", ["", Path("x.db"), 3], ids=repr)
def test_a_store_that_is_no_url_is_refused_where_it_was_given(folder: Path, value: Any) -> None:
    for options, named in (({"app_store": value}, "App(store=)"), ({"flags": {"store": value}}, "--store")):
        assert refusal(folder, **options).startswith(f"{named} is {value!r}; it must be the URL of a state store")


def test_roles_that_are_no_list_are_refused_where_they_were_given(folder: Path) -> None:
    assert refusal(folder, flags={"roles": "agents"}).startswith("--roles is 'agents'; it must be a list")


# --- what cannot work together
@pytest.mark.parametrize(
    ("one", "other", "part"),
    [
        (("alerts_webhook_url", URL), None, "an alert is sent signed or not at all; give both or none"),
        (None, ("alerts_webhook_secret", SECRET), "an alert is sent signed or not at all; give both or none"),
        (("alerts_retry_seconds", 60), ("alerts_retry_seconds_max", 59), "lower the one or raise the other"),
        (("alerts_retry_seconds", 3_601), None, "lower the one or raise the other"),
        (("supervise_seconds", 2.1), None, "the leader would lose its lease between two passes"),
        (("supervise_seconds_max", 0.2), None, "raise the one or lower the other"),
        (None, ("leader_seconds", 0.7), "the leader would lose its lease between two passes"),
        (("poll_seconds", 3), None, "lower the one or raise the other"),
        (("poll_seconds", 1.5), ("lease_seconds", 1.5), "lower the one or raise the other"),
        (("store", "memory://"), ("roles", ["agents"]), "run scheduler, agents and supervisor together, or name"),
        (("http_tls_cert", "chain.pem"), None, "of no use without its key"),
        (None, ("http_tls_key", "key.pem"), "of no use without its key"),
        (("http_proxy_scopes_header", "x-scopes"), None, "give both"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_settings_that_cannot_work_together_are_refused_with_both_and_where_they_come_from(
    folder: Path, one: tuple[str, Any] | None, other: tuple[str, Any] | None, part: str
) -> None:
    file = wrote(folder, toml(**{one[0]: msgspec.json.encode(one[1]).decode()}) if one else "")
    environment = {BY_NAME[other[0]].variable: _as_text(other[1])} if other else {}
    (pair,) = [
        conflict
        for conflict in CONFLICTS
        if (one is None or conflict.one == one[0]) and (other is None or conflict.other == other[0])
    ]
    refused = refusal(folder, environment=environment)
    first, second = BY_NAME[pair.one], BY_NAME[pair.other]
    origins = (str(file) if one else "default", second.variable if other else "default")
    assert refused.startswith(f"{first.path} ")
    assert f" ({origins[0]}) and {second.path} " in refused
    assert f" ({origins[1]}) cannot work together: " in refused
    assert refused.endswith(part) or part in refused
    assert SECRET not in refused


def _as_text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def test_such_a_refusal_reads_as_a_sentence(folder: Path) -> None:
    wrote(folder, toml(lease_seconds="2"))
    assert refusal(folder, environment={"ARRIERO_POLL_SECONDS": "2.5"}) == (
        f"node.poll_seconds 2.5 (ARRIERO_POLL_SECONDS) and node.lease_seconds 2 ({folder}/arriero.toml) cannot work "
        "together: a process would count as lost before it looks at the store again; lower the one or raise the other"
    )
    wrote(folder, "")
    assert refusal(folder, environment={"ARRIERO_ALERTS_WEBHOOK_SECRET": SECRET}) == (
        'alerts.webhook_url "" (default) and alerts.webhook_secret whsec_... (ARRIERO_ALERTS_WEBHOOK_SECRET) cannot '
        "work together: an alert is sent signed or not at all; give both or none"
    )


@pytest.mark.parametrize(
    "flags",
    [
        {"tasks_max": 5, "batch_max": 500},
        {"supervise_seconds": 2.0, "leader_seconds": 6.0},
        {"supervise_seconds": 5.0, "leader_seconds": 15.0},  # as release 0.4.0 allowed
        {"alerts_retry_seconds": 9, "alerts_retry_seconds_max": 9},
        {"store": "memory://", "roles": ["supervisor", "agents", "scheduler"]},
        {"store": "memory://"},
        {"roles": ["agents"]},
        {"alerts_webhook_url": URL, "alerts_webhook_secret": SECRET},
    ],
    ids=repr,
)
def test_what_only_looks_impossible_is_let_through(folder: Path, flags: dict[str, Any]) -> None:
    found = loaded(folder, flags=flags)
    assert found.node_settings().tasks_max == flags.get("tasks_max", 1_000)
    for name in flags:
        assert found.origin(name) == BY_NAME[name].flag


def test_a_setting_that_is_overridden_is_judged_by_what_overrides_it(folder: Path) -> None:
    wrote(folder, toml(poll_seconds="5"))
    assert loaded(folder, environment={"ARRIERO_POLL_SECONDS": "0.1"}).poll_seconds == 0.1


# --- the webhook
@pytest.mark.parametrize(
    "url",
    [
        "https://alerts.example",
        "https://alerts.example:8443/a?b=c",
        "https://[2001:db8::1]/x",
        "http://localhost:8000/x",
        "http://127.0.0.1/x",
        "http://127.9.9.9/x",
        "http://[::1]:80/",
        "HTTPS://ALERTS.EXAMPLE/",
    ],
)
def test_a_webhook_is_https_or_on_this_machine(folder: Path, url: str) -> None:
    flags = {"alerts_webhook_url": url, "alerts_webhook_secret": SECRET}
    assert loaded(folder, flags=flags).alerts_webhook_url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://alerts.example/",
        "http://10.0.0.1/",
        "http://0.0.0.0/",
        "http://localhost.alerts.example/",
        "http://127.0.0.1.alerts.example/",
        "http://alerts.example\\@localhost/",
        "http://localhost@alerts.example/",
        "https://alerts.example\\.other.example/",
        "ftp://alerts.example/",
        "alerts.example",
        "https://",
        "https:///x",
        "https://alerts.example:port/",
        "https://alerts.example:99999/",
        "https://[alerts/",
        "https://alerts.example/a b",
        "https://alerts.example/\n",
        "https://älerts.example/",
        "https://alerts.example/\0",
        " ",
        3,
    ],
    ids=repr,
)
def test_any_other_webhook_is_refused(folder: Path, url: Any) -> None:
    refused = refusal(folder, flags={"alerts_webhook_url": url, "alerts_webhook_secret": SECRET})
    assert refused.startswith("--alerts-webhook-url is ")
    assert "it must be an https:// URL without user and password, or an http:// one of this machine" in refused


def test_a_password_in_a_refused_url_is_not_repeated(folder: Path) -> None:
    flags = {"alerts_webhook_url": "https://anna:sesame@alerts.example/", "alerts_webhook_secret": SECRET}
    refused = refusal(folder, flags=flags)
    assert "'https://***@alerts.example/'" in refused
    assert "sesame" not in refused


@pytest.mark.parametrize("size", [24, 25, 64])
def test_a_secret_of_24_to_64_bytes_is_taken(folder: Path, size: int) -> None:
    secret = "whsec_" + base64.b64encode(bytes(size)).decode()
    flags = {"alerts_webhook_url": URL, "alerts_webhook_secret": secret}
    assert loaded(folder, flags=flags).alerts_webhook_secret == secret


@pytest.mark.parametrize(
    "secret",
    [
        "sesame",
        "whsec_",
        "whsec_sesame",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        SECRET.removeprefix("whsec_"),
        SECRET + "!",
        SECRET + "\n",
        "whsec_" + "ä" * 32,
    ],
    ids=repr,
)
def test_any_other_secret_is_refused_without_repeating_it(folder: Path, secret: str) -> None:
    for options in (
        {"flags": {"alerts_webhook_url": URL, "alerts_webhook_secret": secret}},
        {"environment": {"ARRIERO_ALERTS_WEBHOOK_URL": URL, "ARRIERO_ALERTS_WEBHOOK_SECRET": secret}},
    ):
        refused = refusal(folder, **options)
        assert refused.endswith(" is not shown here; it must be whsec_ and the base64 of 24 to 64 random bytes")
        assert secret.removeprefix("whsec_") == "" or secret.removeprefix("whsec_") not in refused


def test_a_secret_of_another_type_is_not_repeated_either(folder: Path) -> None:
    wrote(folder, '[alerts]\nwebhook_secret = ["sesame"]')
    assert "sesame" not in refusal(folder)


def test_the_secret_is_masked_wherever_values_are_shown(folder: Path) -> None:
    found = loaded(folder, flags={"alerts_webhook_url": URL, "alerts_webhook_secret": SECRET})
    setting = BY_NAME["alerts_webhook_secret"]
    assert mask_value(found.alerts_webhook_secret, setting.about.kind) == SECRET_MASKED
    assert format_setting(setting, found.alerts_webhook_secret) == SECRET_MASKED
    assert SECRET not in repr(found)
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://anna:ses@me@here/shop", "postgresql://***@here/shop"),
        ("postgresql://anna:ses/a#me@here/shop", "postgresql://***@here/shop"),
        ("postgresql://anna:ses?a me@here/shop", "postgresql://***@here/shop"),
        ("postgresql://here/shop?user=anna&password=sesame&x=y", "postgresql://here/shop?user=anna&password=***&x=y"),
        ("postgresql://here/shop?sslpassword=sesame", "postgresql://here/shop?sslpassword=***"),
        (
            "postgresql://here/shop?listen_url=postgresql%3A%2F%2Fanna%3Asesame%40here&listen=on",
            "postgresql://here/shop?listen_url=***&listen=on",
        ),
        ("host=here password='sesame street' user=anna", "host=here password=*** user=anna"),
        ("postgresql://here,there:5433/shop?schema=tasks", "postgresql://here,there:5433/shop?schema=tasks"),
        ("sqlite:////srv/anna:a@b.db", "sqlite:////srv/anna:a@b.db"),
    ],
)
def test_the_password_of_a_store_is_masked_and_what_only_looks_like_one_is_not(url: str, text: str) -> None:
    assert format_setting(BY_NAME["store"], url) == text


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://hooks.example/services/T0/B0/sesame", "https://hooks.example/***"),
        ("https://hooks.example:8443?token=sesame#x", "https://hooks.example:8443/***"),
        ("https://hooks.example/", "https://hooks.example/"),
        ("https://hooks.example", "https://hooks.example"),
        ("https://anna:ses/ame@hooks.example/", "***"),
        ("https://hooks.example/ses@me", "***"),
        ("hooks.example/services/sesame", "***"),
        ("https://hooks.example\\sesame", "https://hooks.example/***"),
    ],
)
def test_of_a_webhook_only_the_host_is_shown_whether_it_is_taken_or_refused(folder: Path, url: str, text: str) -> None:
    assert format_setting(BY_NAME["alerts_webhook_url"], url) == text
    refused = refusal(folder, flags={"alerts_webhook_url": f"{url}\n", "alerts_webhook_secret": SECRET})
    assert "ses" not in refused.partition(";")[0]


def test_a_password_among_the_arguments_of_the_alert_command_is_masked() -> None:
    command = ("notify", "--store", "postgresql://anna:sesame@here/shop")
    assert "sesame" not in format_setting(BY_NAME["alerts_command"], command)


# --- as it is written
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("app", "", '""'),
        ("store", "sqlite:///x.db", "sqlite:///x.db"),
        ("lease_seconds", 3.0, "3"),
        ("poll_seconds", 0.05, "0.05"),
        ("replies_keep_seconds", 604_800.0, "604800"),
        ("tasks_max", 1_000, "1000"),
        ("alerts_log", True, "true"),
        ("roles", DEFAULT_ROLES, '["scheduler","agents","supervisor"]'),
        ("alerts_command", (), "[]"),
    ],
)
def test_a_value_is_written_as_a_person_would(name: str, value: Any, text: str) -> None:
    assert format_setting(BY_NAME[name], value) == text


def test_reading_settings_without_a_file_loads_no_parser_of_files(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from arriero.config import load_configuration;"
        " load_configuration(environment={}, folder=Path('/'));"
        " print('tomllib' in sys.modules, 'difflib' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    assert ran.stdout == "False False\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            '["*"]',
            "that is any page: each could act with the rights of its visitor; name the origins of your pages",
        ),
        ('["null"]', "that is any page"),
        (
            '["https://desk.example.com/path"]',
            "it must be a list of origins without a path, like https://desk.example.com",
        ),
        ('["desk.example.com"]', "it must be a list of origins"),
    ],
)
def test_an_origin_that_stands_for_any_page_is_refused(given: str, said: str, folder: Path) -> None:
    wrote(folder, f"[http]\norigins = {given}\n")
    with pytest.raises(InvalidInput, match=re.escape(said)):
        loaded(folder)
