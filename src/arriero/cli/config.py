"""``arriero config``: the settings as they hold here, and where each comes from."""

from typing import Any

import click
import msgspec

from ..config import SETTINGS, Configuration, Setting, unknown_variables, written
from ..config_values import shown
from .output import one_line, print_json, print_table
from .stores import configured, json_option, store_option


class ShownSetting(msgspec.Struct, frozen=True):
    """What ``config --json`` prints of a setting."""

    name: str
    value: Any
    origin: str


@click.command(short_help="Print the settings, and where each comes from.")
@store_option
@json_option
def config(store: str | None, as_json: bool) -> None:
    """Print the settings as they hold in this folder, and where each comes from.

    Each place overrides those before it: defaults, App(store=), the nearest arriero.toml in this folder or above it,
    the environment, options. Secrets are masked.
    """
    for line in unknown_variables():
        click.echo(f"arriero: {one_line(line)}", err=True)
    configuration = configured(store)
    if as_json:
        for setting in SETTINGS:
            print_json(_shown(setting, configuration))
    else:
        print_table(("name", "value", "origin"), [_cells(setting, configuration) for setting in SETTINGS])


def _shown(setting: Setting, configuration: Configuration) -> ShownSetting:
    value = shown(getattr(configuration, setting.name), setting.about.kind)
    return ShownSetting(setting.path, _encodable(value), _encodable(configuration.origin(setting.name)))


def _encodable(value: Any) -> Any:
    """Names of files may hold bytes that are no text; JSON cannot."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _cells(setting: Setting, configuration: Configuration) -> tuple[str, ...]:
    return (
        setting.path,
        written(setting, getattr(configuration, setting.name)),
        configuration.origin(setting.name),
    )
