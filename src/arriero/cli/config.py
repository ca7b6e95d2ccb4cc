"""``arriero config``: the settings as they hold here, and where each comes from."""

from typing import Any

import click
import msgspec

from ..config import DEFAULT, SETTINGS, Configuration, unknown_variables
from ..config.values import Setting, format_setting, mask_value
from ..text.escaping import one_line
from ..text.format import format_count
from .options import json_option, store_option
from .output import print_json, print_table
from .stores import load_store_configuration


class ShownSetting(msgspec.Struct, frozen=True):
    """One setting in the output of ``config --json``."""

    name: str
    value: Any
    origin: str


@click.command(short_help="Print the settings, and where each comes from.")
@click.option("--all", "is_all", is_flag=True, help="Also print the settings that have their defaults.")
@store_option
@json_option
def config(is_all: bool, store: str | None, as_json: bool) -> None:
    """Print the settings that differ from their defaults in this folder, and where each comes from.

    With --json all settings are printed.

    Each place overrides those before it: defaults, App(store=), the nearest arriero.toml in this folder or above it,
    the environment, options. Secrets are masked.
    """
    for line in unknown_variables():
        click.echo(f"arriero: {one_line(line)}", err=True)
    configuration = load_store_configuration(store)
    if as_json:
        for setting in SETTINGS:
            print_json(_build_shown_setting(setting, configuration))
    else:
        shown = [setting for setting in SETTINGS if is_all or configuration.origin(setting.name) != DEFAULT]
        if shown:
            print_table(("name", "value", "origin"), [_format_cells(setting, configuration) for setting in shown])
        if count := len(SETTINGS) - len(shown):
            verb = "has its default" if count == 1 else "have their defaults"
            click.echo(f"{format_count(count, 'setting')} {verb} (--all lists them)")


def _build_shown_setting(setting: Setting, configuration: Configuration) -> ShownSetting:
    value = mask_value(getattr(configuration, setting.name), setting.about.kind)
    return ShownSetting(
        setting.path, _escape_undecodable(value), _escape_undecodable(configuration.origin(setting.name))
    )


def _escape_undecodable(value: Any) -> Any:
    """Names of files may hold bytes that are not text; JSON cannot."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _format_cells(setting: Setting, configuration: Configuration) -> tuple[str, ...]:
    return (
        setting.path,
        format_setting(setting, getattr(configuration, setting.name)),
        configuration.origin(setting.name),
    )
