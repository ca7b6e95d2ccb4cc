"""Settings: declared once, read from five places, refused when they cannot work together.

Each place overrides the ones before it: defaults, ``App(store=)``, the file ``arriero.toml``, the environment, flags.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec

from ..errors import InvalidInput
from ..model import Verb
from ..runtime import crash_points
from ..runtime.settings import DEFAULT_ROLES, Settings
from ..store import MEMORY
from .http import HttpSettings
from .trust import read_trusted_file
from .values import (
    APP,
    COUNT,
    DEPLOYMENT_NAME,
    FLAG,
    LOG_FORMAT,
    LOSSES,
    PERSONS,
    PREFIX,
    PROGRAM,
    ROLE_NAMES,
    SECONDS,
    STORE,
    TAG_NAMES,
    WEBHOOK_SECRET,
    WEBHOOK_URL,
    Setting,
    SettingInfo,
    UnfitValue,
    find_nearest,
    format_refused_value,
    format_setting,
)

FILE_NAME = "arriero.toml"
NOT_SETTINGS = (crash_points.VARIABLE,)  # ours, for tests of crashes; no place but the environment may turn it on
DEFAULT, OF_APP = "default", "App(store=)"
DEFAULT_STORE = "sqlite:///arriero.db"
SQLITE = "sqlite:///"
NODE = Settings()
DAY = 86_400.0


def _seconds(table: str, text: str) -> SettingInfo:
    return SettingInfo(SECONDS, text, table, "seconds")


def _persons(verb: Verb) -> SettingInfo:
    text = f"How many operators must ask for {verb} of a task before it is carried out."
    return SettingInfo(PERSONS, text, "approvals", "persons")


class Configuration(HttpSettings, frozen=True, kw_only=True):
    """All settings as they hold, and where each came from. ``load`` makes one."""

    store: Annotated[str, SettingInfo(STORE, "The state store; in the file, a relative path starts at its folder.")] = (
        DEFAULT_STORE
    )
    app: Annotated[str, SettingInfo(APP, "The App that commands load when they need its code.")] = ""
    roles: Annotated[tuple[str, ...], SettingInfo(ROLE_NAMES, "What a process that runs an App does.")] = DEFAULT_ROLES
    deployment: Annotated[
        str, SettingInfo(DEPLOYMENT_NAME, "The deployment of the code, such as a commit: tasks may belong to it.")
    ] = NODE.deployment

    lease_seconds: Annotated[float, _seconds("node", "After so long without renewal a process counts as lost.")] = (
        NODE.lease_seconds
    )
    poll_seconds: Annotated[float, _seconds("node", "Between two looks at what is due in the store.")] = (
        NODE.poll_seconds
    )
    supervise_seconds: Annotated[
        float, _seconds("node", "Between two passes of the Supervisor while something is overdue.")
    ] = NODE.supervise_seconds
    supervise_seconds_max: Annotated[
        float,
        _seconds(
            "node",
            "Between two passes of the Supervisor while nothing is overdue; it doubles up to it. What expires waits no longer"
            " for its recovery.",
        ),
    ] = NODE.supervise_seconds_max
    leader_seconds: Annotated[float, _seconds("node", "The lease of the leading Supervisor.")] = NODE.leader_seconds
    progress_seconds: Annotated[float, _seconds("node", "A holder that leaves news unseen so long loses the task.")] = (
        NODE.progress_seconds
    )
    hang_seconds: Annotated[float, _seconds("node", "An event loop that is blocked for this long loses the lease.")] = (
        NODE.hang_seconds
    )
    linger_seconds: Annotated[float, _seconds("node", "How long an idle task is kept in memory.")] = NODE.linger_seconds
    tasks_max: Annotated[int, SettingInfo(COUNT, "Tasks that a process holds at a time.", "node", "tasks")] = (
        NODE.tasks_max
    )
    batch_max: Annotated[int, SettingInfo(COUNT, "Rows in one claim, take or pass.", "node", "rows")] = NODE.batch_max
    redispatch_per_second_max: Annotated[
        int,
        SettingInfo(
            COUNT, "Attempts that expired and come back in a second; more wait for their turn.", "node", "attempts"
        ),
    ] = NODE.redispatch_per_second_max
    lost_processes_max: Annotated[
        int,
        SettingInfo(
            LOSSES,
            "A task is held when this many processes died with it, without progress between. The process that frees it uses"
            " its setting: give all processes of a store the same.",
            "node",
            "processes",
        ),
    ] = NODE.lost_processes_max

    replies_keep_seconds: Annotated[
        float, _seconds("replies", "Statuses that nobody acknowledged are dropped after it, leaving a gap mark.")
    ] = 7 * DAY
    purge_idempotency_keep_seconds: Annotated[
        float, _seconds("purge", "A task that ended more recently is not purged: its id would be accepted as new.")
    ] = 7 * DAY

    approvals_resubmit: Annotated[int, _persons(Verb.RESUBMIT)] = 1
    approvals_compensate: Annotated[int, _persons(Verb.COMPENSATE)] = 1
    approvals_cancel: Annotated[int, _persons(Verb.CANCEL)] = 1
    approvals_extend: Annotated[int, _persons(Verb.EXTEND)] = 1
    approvals_adjust: Annotated[int, _persons(Verb.ADJUST)] = 1
    approvals_answer: Annotated[int, _persons(Verb.ANSWER)] = 1
    approvals_pause: Annotated[int, _persons(Verb.PAUSE)] = 1
    approvals_resume: Annotated[int, _persons(Verb.RESUME)] = 1
    approvals_snooze: Annotated[int, _persons(Verb.SNOOZE)] = 1
    approvals_tag: Annotated[int, _persons(Verb.TAG)] = 1
    approvals_pin: Annotated[int, _persons(Verb.PIN)] = 1
    approvals_keep_seconds: Annotated[
        float, _seconds("approvals", "An approval counts for so long; any verb carried out on the task ends it.")
    ] = DAY

    metrics_tags: Annotated[
        tuple[str, ...], SettingInfo(TAG_NAMES, "Tags by which metrics count the tasks that ended.", "metrics")
    ] = ()

    log_format: Annotated[
        str,
        SettingInfo(
            LOG_FORMAT, "How a process that runs for long writes its log: lines for operators, or JSON.", "log"
        ),
    ] = "text"

    alerts_log: Annotated[bool, SettingInfo(FLAG, "Write alerts to the log.", "alerts")] = True
    alerts_command: Annotated[
        tuple[str, ...],
        SettingInfo(PROGRAM, "The program started for each alert, without a shell.", "alerts"),
    ] = ()
    alerts_command_timeout_seconds: Annotated[float, _seconds("alerts", "The program may take so long.")] = 30.0
    alerts_webhook_url: Annotated[str, SettingInfo(WEBHOOK_URL, "Where alerts are sent to, signed.", "alerts")] = ""
    alerts_webhook_secret: Annotated[
        str, SettingInfo(WEBHOOK_SECRET, "Signs what is sent, as in Standard Webhooks.", "alerts")
    ] = ""
    alerts_webhook_timeout_seconds: Annotated[float, _seconds("alerts", "The receiver may take so long.")] = 15.0
    alerts_retry_seconds: Annotated[
        float, _seconds("alerts", "Before an alert that did not arrive is sent again; doubled each time.")
    ] = 5.0
    alerts_retry_seconds_max: Annotated[float, _seconds("alerts", "The longest such delay.")] = 3_600.0

    file: Path | None = None  # the one that was read
    origins: dict[str, str] = msgspec.field(default_factory=dict)  # of what is not default

    def origin(self, name: str) -> str:
        """Return where the setting of this name (``alerts_log``) came from: a place, a file, a variable or a flag."""
        return self.origins.get(name, DEFAULT)

    def count_persons(self, verb: Verb) -> int:
        """Return how many operators must ask for a verb of a task."""
        return int(getattr(self, f"approvals_{verb}"))

    def node_settings(self) -> Settings:
        """Return the settings of a node."""
        return Settings(**{name: getattr(self, name) for name in Settings.__struct_fields__})

    def __repr__(self) -> str:  # without values: one of them is a secret
        return f"<configuration: {self.file or 'no file'}, {len(self.origins)} settings given>"


def _collect_settings() -> tuple[Setting, ...]:
    hints = get_type_hints(Configuration, include_extras=True)
    found = [
        Setting(field.name, field.default, hints[field.name].__metadata__[0])
        for field in msgspec.structs.fields(Configuration)
        if hasattr(hints[field.name], "__metadata__")
    ]
    # Fields of the base come first there, and last here.
    return tuple(sorted(found, key=lambda setting: setting.name in HttpSettings.__struct_fields__))


SETTINGS = _collect_settings()  # in the order of their declaration; they are read, printed and documented from here
VARIABLES = {setting.variable: setting for setting in SETTINGS}  # of the environment


class FoundSetting(msgspec.Struct, frozen=True):
    """A value that one of the places gives."""

    setting: Setting
    value: Any
    origin: str


def load_configuration(
    *,
    app_store: str | None = None,
    flags: Mapping[str, Any] = {},
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Configuration:
    """The settings as they hold here and now.

    Args:
        app_store: of ``App(store=)``.
        flags: values by the settings' names; None counts as not given.
        environment: instead of the process's own.
        folder: from which upwards the file is looked for, instead of the current one.
    Raises: InvalidInput - a value, key or file that cannot be used, or settings that cannot work together. The message
        names the setting, where it came from and the remedy.
    """
    file = find_file(_current_folder() if folder is None else folder.absolute())
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for place in (
        _read_app_store(app_store),
        () if file is None else _read_file(file),
        _read_environment(os.environ if environment is None else environment),
        _read_flags(flags),
    ):
        for found in place:
            values[found.setting.name] = found.value
            origins[found.setting.name] = found.origin
    configuration = Configuration(**values, file=file, origins=origins)
    _refuse_impossible(configuration)
    return configuration


def unknown_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """One line for each variable that looks like a setting and is none; it changes nothing, but was meant to."""
    known = {variable.removeprefix(PREFIX) for variable in VARIABLES}
    names = os.environ if environment is None else environment
    strange = sorted(set(names) - {PREFIX + name for name in known} - set(NOT_SETTINGS))
    return [_describe_unknown_variable(name, known) for name in strange if name.startswith(PREFIX)]


def _describe_unknown_variable(variable: str, known: Iterable[str]) -> str:
    nearest = find_nearest(variable.removeprefix(PREFIX), known)
    meant = "unset it" if nearest is None else f"did you mean {PREFIX}{nearest}?"
    return f"{variable} is not a setting and changes nothing; {meant}"


def find_file(folder: Path) -> Path | None:
    """The nearest ``arriero.toml``, in the folder or above it."""
    for above in (folder, *folder.parents):
        if os.path.lexists(above / FILE_NAME):  # a link that leads nowhere is a mistake to report, not to be passed by
            return above / FILE_NAME
    return None


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InvalidInput("the current folder was removed; change to one that exists") from error


# --- the places
def _read_app_store(store: str | None) -> Iterator[FoundSetting]:
    if store is not None:
        yield _check_setting(_find_setting("store"), store, OF_APP, OF_APP)


def _read_flags(flags: Mapping[str, Any]) -> Iterator[FoundSetting]:
    for name, value in flags.items():
        if value is not None:
            setting = _find_setting(name)
            yield _check_setting(setting, value, setting.flag, setting.flag)


def _read_environment(environment: Mapping[str, str]) -> Iterator[FoundSetting]:
    for variable, setting in VARIABLES.items():
        text = environment.get(variable)
        if text is None:
            continue
        if not text.strip():
            raise InvalidInput(f"{variable} is empty; unset it, or give it {setting.about.kind.must_be}")
        try:
            value = setting.about.kind.parsed(text)
        except ValueError as error:
            raise _refusal(setting, text, variable, error) from error
        yield _check_setting(setting, value, variable, variable)


def _read_file(file: Path) -> Iterator[FoundSetting]:
    tables = {setting.about.table for setting in SETTINGS} - {""}
    for key, value in read_trusted_file(file).items():
        if key not in tables:
            yield _check_file_setting(file, "", key, value)
        elif not isinstance(value, dict):
            raise InvalidInput(f"{file}: {key} must be a table; write its keys below [{key}]")
        else:
            for inner, inner_value in value.items():
                yield _check_file_setting(file, key, inner, inner_value)


def _check_file_setting(file: Path, table: str, key: str, value: Any) -> FoundSetting:
    for setting in SETTINGS:
        if (setting.about.table, setting.key) == (table, key):
            found = _check_setting(setting, value, str(file), f"{file}: {setting.path}")
            if setting.name != "store":
                return found
            return FoundSetting(setting, _resolve_store_path(file.parent, found.value), found.origin)
    path = f"{table}.{key}" if table else key
    what = f"the table [{path}]" if isinstance(value, dict) else path
    known = [setting.path for setting in SETTINGS]
    nearest = find_nearest(path, known)
    meant = _list_known(table) if nearest is None else f"did you mean {nearest}?"
    raise InvalidInput(f"{file}: {what} is not known; {meant}")


def _list_known(table: str) -> str:
    """List the settings of a table, or all tables if there is none of the name."""
    keys = [setting.key for setting in SETTINGS if setting.about.table == table]
    if table and keys:
        return f"settings of [{table}] are {', '.join(keys)}"
    top = [setting.key for setting in SETTINGS if not setting.about.table]
    tables = dict.fromkeys(f"[{setting.about.table}]" for setting in SETTINGS if setting.about.table)
    return f"settings are {', '.join(top)}, and the tables {', '.join(tables)}"


def _resolve_store_path(folder: Path, url: str) -> str:
    """The same store from every folder: a relative path in a file starts where the file is."""
    path = url.removeprefix(SQLITE)
    return url if path in ("", url) else f"{SQLITE}{folder / path}"


def _check_setting(setting: Setting, value: object, origin: str, named: str) -> FoundSetting:
    try:
        return FoundSetting(setting, setting.about.kind.checked(value), origin)
    except ValueError as error:
        raise _refusal(setting, value, named, error) from error


def _refusal(setting: Setting, value: object, named: str, error: ValueError) -> InvalidInput:
    kind = setting.about.kind
    remedy = str(error) if isinstance(error, UnfitValue) and str(error) else f"it must be {kind.must_be}"
    return InvalidInput(f"{named} is {format_refused_value(value, kind)}; {remedy}")


def _find_setting(name: str) -> Setting:
    (setting,) = [setting for setting in SETTINGS if setting.name == name]
    return setting


# --- what cannot work together
class Conflict(msgspec.Struct, frozen=True):
    """Two settings, when they cannot work together, and why."""

    one: str
    other: str
    is_there: Callable[[Configuration], bool]
    why: str


CONFLICTS = (
    Conflict(
        "http_tls_cert",
        "http_tls_key",
        lambda has: bool(has.http_tls_cert) != bool(has.http_tls_key),
        "a certificate is of no use without its key; give both or none",
    ),
    Conflict(
        "http_unix_socket",
        "http_tls_cert",
        lambda has: bool(has.http_unix_socket and has.http_tls_cert),
        "nobody can listen in on a socket of this machine; leave one of them out",
    ),
    Conflict(
        "http_proxy_scopes_header",
        "http_behind_proxy",
        lambda has: bool(has.http_proxy_scopes_header and not has.http_behind_proxy),
        "scopes are taken from a proxy that names the caller, too; give both",
    ),
    Conflict(
        "alerts_webhook_url",
        "alerts_webhook_secret",
        lambda has: bool(has.alerts_webhook_url) != bool(has.alerts_webhook_secret),
        "an alert is sent signed or not at all; give both or none",
    ),
    Conflict(
        "alerts_retry_seconds",
        "alerts_retry_seconds_max",
        lambda has: has.alerts_retry_seconds > has.alerts_retry_seconds_max,
        "the first delay is longer than the longest; lower the one or raise the other",
    ),
    Conflict(
        "supervise_seconds",
        "leader_seconds",
        lambda has: has.supervise_seconds * 3 > has.leader_seconds,
        "the one is more than a third of the other, so the leader would lose its lease between two passes; "
        "lower the one or raise the other",
    ),
    Conflict(
        "supervise_seconds_max",
        "supervise_seconds",
        lambda has: (
            has.origin("supervise_seconds_max") != DEFAULT and has.supervise_seconds > has.supervise_seconds_max
        ),
        "the longest period is shorter than the shortest; raise the one or lower the other",
    ),
    Conflict(
        "poll_seconds",
        "lease_seconds",
        lambda has: has.poll_seconds >= has.lease_seconds,
        "a process would count as lost before it looks at the store again; lower the one or raise the other",
    ),
    Conflict(
        "store",
        "roles",
        lambda has: has.store == MEMORY and not set(DEFAULT_ROLES) <= set(has.roles),
        "this store lives inside one process, where the other roles could never reach it; "
        "run scheduler, agents and supervisor together, or name a file, sqlite:///PATH, or a server, postgresql://USER@HOST/DATABASE",
    ),
)


def _refuse_impossible(configuration: Configuration) -> None:
    for conflict in CONFLICTS:
        if conflict.is_there(configuration):
            both = [_format_with_origin(configuration, _find_setting(name)) for name in (conflict.one, conflict.other)]
            raise InvalidInput(f"{' and '.join(both)} cannot work together: {conflict.why}")


def _format_with_origin(configuration: Configuration, setting: Setting) -> str:
    value = format_setting(setting, getattr(configuration, setting.name))
    return f"{setting.path} {value} ({configuration.origin(setting.name)})"
