"""Writes what the reference takes from the code: commands, settings, defaults, invariants, and what each verb does.

    python docs/reference/generate.py

Whole pages are written anew; in the others only what stands between two markers. A test compares.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from fastapi import FastAPI
from starlette.requests import Request

from arriero import Agent, App, Breaker, ConvoyPolicy, Retry, Supervision, workflow
from arriero.audit.check import CHECKED
from arriero.cli.main import commands
from arriero.client.tasks import TaskSelector
from arriero.config import SETTINGS
from arriero.config.values import Setting, format_setting
from arriero.core.attempts import EXTEND_MAX_FACTOR
from arriero.core.capacity import BURST, PER_SECOND
from arriero.core.due import PRIORITY_STEP_SECONDS
from arriero.core.supervision import ATTEMPT_DELAY_SECONDS, DELAY_SECONDS_MAX
from arriero.declare.option_checks import MAX_IN_FLIGHT
from arriero.declare.step_options import COMPLETE_WITHIN
from arriero.metrics import FAMILIES
from arriero.model import TaskState, Verb
from arriero.model.verb_rules import VERB_RULES
from arriero.operations.problems import ERRORS, MEANINGS, PROBLEM_TYPES
from arriero.payloads.codec import PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_WARN, PAYLOAD_DEPTH_MAX
from arriero.runtime.submissions import ON_THE_WAY_MAX
from arriero.server.application import build_application
from arriero.server.calls import Caller
from arriero.server.openapi import build_openapi

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
MADE = "<!-- made by docs/reference/generate.py; edit the code instead -->"
FILTERED = TaskSelector.__struct_fields__  # told once, under task list


def pages() -> dict[Path, str]:
    """Every page that holds something generated, as it should be."""
    found = {
        DOCS / "reference" / "cli.md": _cli(),
        DOCS / "reference" / "configuration.md": _configuration(),
        DOCS / "reference" / "defaults.md": _defaults(),
        DOCS / "reference" / "invariants.md": _invariants(),
        DOCS / "reference" / "problems.md": _problems(),
        DOCS / "reference" / "openapi.json": _openapi(),
    }
    overview = DOCS / "how-to" / "README.md"
    found[overview] = _between(overview, "verbs", _verb_table())
    metrics = DOCS / "how-to" / "metrics.md"
    found[metrics] = _between(metrics, "metrics", _metrics())
    for verb in Verb:
        page = _page_of(verb)
        text = found.get(page, page.read_text(encoding="utf-8"))
        found[page] = _replaced(text, str(verb), _one_verb(verb))
    return found


def _page_of(verb: Verb) -> Path:
    shared = {
        Verb.PAUSE: "pause-and-resume",
        Verb.RESUME: "pause-and-resume",
        Verb.TAG: "tags",
        Verb.PIN: "code-versions",
    }
    shared |= {Verb.EXTEND: "change-limits", Verb.ADJUST: "change-limits"}
    return DOCS / "how-to" / f"{shared.get(verb, verb)}.md"


def _between(page: Path, name: str, lines: Iterator[str]) -> str:
    return _replaced(page.read_text(encoding="utf-8"), name, lines)


def _replaced(text: str, name: str, lines: Iterator[str]) -> str:
    begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"no page part between {begin} and {end}")
    body = "\n".join(lines)
    return f"{head}{begin}\n\n{body}\n\n{end}{tail}"


def _page(*lines: str) -> str:
    return "\n".join([MADE, "", *lines]) + "\n"


def _table(*columns: str) -> list[str]:
    return [_row(*columns), _row(*("---",) * len(columns))]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# --- metrics
def _metrics() -> Iterator[str]:
    yield from _table("metric", "of the", "kind", "labels", "what it is")
    for family in FAMILIES:
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.kind, "")
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield _row(f"`{name}`", family.source, family.kind, labels, family.help)


# --- verbs
def _verb_table() -> Iterator[str]:
    """Which verb is allowed in which state."""
    yield from _table("the task is", *(f"[{verb}]({_page_of(verb).name})" for verb in Verb))
    for state in TaskState:
        marks = ("yes" if (verb, state) in VERB_RULES else "" for verb in Verb)
        yield _row(f"`{state}`", *marks)


def _one_verb(verb: Verb) -> Iterator[str]:
    yield from _table("the task is", f"`{verb}` does", "attempts under way")
    for (of, state), rule in VERB_RULES.items():
        if of is verb:
            yield _row(f"`{state}`", rule.effect, rule.running)


# --- the HTTP API
def _build_server() -> FastAPI:
    """Build a server that nobody asks: its document is the same for every App."""

    class Nobody:
        async def authenticate(self, request: Request) -> Caller:
            raise NotImplementedError

    return build_application(App("reference"), Nobody())


def _openapi() -> str:
    document = build_openapi(_build_server().routes)
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _problems() -> str:
    lines = [
        "# Problems",
        "",
        "The HTTP API answers a refusal with a problem document (RFC 9457), `application/problem+json`. Its `type` is",
        "`urn:arriero:problem:CODE`. Programs branch on `code`, which is stable; `detail` is for people, and may change. The",
        "[document of the API](openapi.json) lists the problems of each operation.",
        "",
        "A command with `--json` that fails prints the same document on standard error, as one line. It exits with the code of",
        "the column `exit`; the [command line](cli.md#exit-codes) lists what the exit codes mean. Problems without one occur only",
        "over HTTP, and those of status 500 with one only in commands.",
        "",
        *_table("code", "status", "exit", "title", "what to do"),
    ]
    _build_server()  # whoever declares a problem is loaded
    for problem in sorted(PROBLEM_TYPES.values(), key=lambda one: (one.status, one.code)):
        exits = ", ".join(map(str, sorted({int(one.exit_code) for one in ERRORS if one.problem is problem})))
        lines.append(_row(f"`{problem.code}`", str(problem.status), exits, problem.title, problem.remedy))
    return _page(*lines)


# --- the command line
def _cli() -> str:
    lines = [
        "# The command line",
        "",
        "Data goes to standard output. Notes and errors go to standard error, an error as one line. With `--json` that line is",
        "a [problem document](problems.md), one JSON object. Its `code` and the exit code are stable.",
        "",
        "## Exit codes",
        "",
        *_table("code", "meaning"),
        *(_row(str(int(code)), meaning) for code, meaning in MEANINGS.items()),
        "",
        "`arriero lead` exits with the code of the program that it runs.",
        "",
        *_commands(commands, "arriero"),
    ]
    return _page(*lines)


def _commands(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"## {path}"
    yield ""
    pieces = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"    {pieces}"
    yield ""
    yield from _prose(command.help or "")
    subcommands = command.commands if isinstance(command, click.Group) else {}
    yield from _options(command, context, path)
    if subcommands:
        yield from _table("command", "what it does")
        for name in sorted(subcommands):
            link = f"[{path} {name}](#{f'{path} {name}'.replace(' ', '-')})"
            yield _row(link, subcommands[name].get_short_help_str(limit=200))
        yield ""
    for name in sorted(subcommands):
        yield from _commands(subcommands[name], f"{path} {name}")


def _prose(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield " ".join(paragraph.split())
        yield ""


def _options(command: click.Command, context: click.Context, path: str) -> Iterator[str]:
    records = []
    is_filtered = False
    for parameter in command.params:
        if _is_of_a_filter(parameter, path):
            is_filtered = True
        elif (record := parameter.get_help_record(context)) is not None and record[1]:  # arguments: usage shows them
            records.append(record)
    if records:
        yield from _table("option", "meaning")
        for written_as, text in records:
            yield _row(f"`{written_as}`", " ".join(text.split()))
        yield ""
    if is_filtered:
        yield "Instead of an ID, the options of [arriero task list](#arriero-task-list) that say which tasks are meant:"
        names = (p.opts[0] for p in command.params if _is_of_a_filter(p, path))
        yield f"{', '.join(f'`{name}`' for name in names)}."
        yield ""
    if command.epilog:
        yield from _prose(command.epilog)


def _is_of_a_filter(parameter: click.Parameter, path: str) -> bool:
    return path.removeprefix("arriero task ") in tuple(Verb) and parameter.name in FILTERED


# --- settings
def _configuration() -> str:
    lines = [
        "# Configuration",
        "",
        "A setting is read from five places; each overrides those before it:",
        "",
        "1. its default,",
        "2. `App(store=)`, for `store` alone,",
        "3. `arriero.toml`, the nearest one in the current folder or above it,",
        "4. the environment,",
        "5. what a call or a command names: `running(store=, roles=)`, `--store`, `--roles`.",
        "",
        "`arriero config` prints what differs from the defaults in a folder and where each value comes from.",
        "An unknown key, an empty value and",
        "settings that cannot work together are refused by name. A variable that begins with `ARRIERO_` and is no setting",
        "is named by `arriero config`. A relative path of `store` in the file starts at the file's folder.",
        "",
        "The file decides what is run, so it is read only if nobody but you and root can write it: neither the file, nor its",
        "folder, may belong to another user or be writable by others. (A folder with the sticky bit may, like `/tmp`; and so",
        "may what the group writes that has you alone for a member.) Else every command refuses it by name. An `arriero.toml` of",
        "your own in a nearer folder takes its place.",
        "",
        *_settings(),
        "## A file with all of them",
        "",
        "Every value is the default; leave out what you do not change.",
        "",
        "```toml",
        *_example(),
        "```",
    ]
    return _page(*lines)


def _by_table() -> dict[str, list[Setting]]:
    tables: dict[str, list[Setting]] = {}
    for setting in SETTINGS:
        tables.setdefault(setting.about.table, []).append(setting)
    return tables


def _settings() -> Iterator[str]:
    for table, settings in _by_table().items():
        yield f"## {f'[{table}]' if table else 'At the top of the file'}"
        yield ""
        yield from _table("key", "variable", "default", "meaning", "value")
        for setting in settings:
            names = (f"`{setting.key}`", f"`{setting.variable}`", f"`{_default(setting)}`")
            yield _row(*names, setting.about.help, setting.about.kind.must_be)
        yield ""


def _default(setting: Setting) -> str:
    return format_setting(setting, setting.default)


def _example() -> Iterator[str]:
    for table, settings in _by_table().items():
        if table:
            yield ""
            yield f"[{table}]"
        for setting in settings:
            value = _default(setting)
            yield f"{setting.key} = {_as_toml(setting, value)}"


def _as_toml(setting: Setting, value: str) -> str:
    return f'"{setting.default}"' if isinstance(setting.default, str) else value


# --- defaults of what is declared in Python
def _defaults() -> str:
    lines = [
        "# Defaults",
        "",
        "What an option is if you leave it out. Delays are jittered: each is between half of its value and the whole value.",
        "For settings of processes see [configuration](configuration.md).",
    ]
    sections = {
        "Calls of a step": _list_call_defaults(),
        "Agents": _list_agent_defaults(),
        "Tasks": _list_task_defaults(),
        "Schedules and leaders": _list_leader_defaults(),
    }
    for title, rows in sections.items():
        lines += ["", f"## {title}", "", *_table("option", "default", "meaning"), *rows]
    return _page(*lines)


def _list_call_defaults() -> list[str]:
    retry, supervision = Retry(), Supervision()
    calls = retry.tries * supervision.attempts * supervision.rounds
    return [
        _row("`Retry(tries=)`", str(retry.tries), "calls in one attempt"),
        _row(
            "`Retry(delay=, factor=, delay_max=)`",
            f"{retry.delay:g} s, {retry.factor:g}, {retry.delay_max:g} s",
            "wait before the second try, its growth, and the longest wait",
        ),
        _row("`Supervision(attempts=)`", str(supervision.attempts), "attempts in a round"),
        _row(
            "delay between attempts",
            f"{ATTEMPT_DELAY_SECONDS:g} s, 2, {DELAY_SECONDS_MAX:g} s",
            "the first wait, its growth, and the longest wait",
        ),
        _row("`Supervision(rounds=)`", str(supervision.rounds), "rounds"),
        _row("`Supervision(cool_off=)`", f"{supervision.cool_off:g} s", "wait between two rounds"),
        _row(
            "**calls of one step in all**",
            f"**{retry.tries} x {supervision.attempts} x {supervision.rounds} = {calls}**",
            "the product; `Retry(max_calls=)` sets one number instead. The loss of a process costs no attempt",
        ),
        _row("`Supervision(then=)`", f"`{supervision.then}`", "when all calls are spent: `compensate` or `hold`"),
        _row("`step(complete_within=)`", f"{COMPLETE_WITHIN:g} s", "time of one attempt"),
        _row(
            "`Supervision(complete_within_factor=)`",
            f"{supervision.complete_within_factor:g}",
            "each later attempt may take this many times the one before",
        ),
        _row(
            "`step(extend_max=)`",
            f"{EXTEND_MAX_FACTOR:g} x `complete_within`",
            "time of an attempt whose code [extends it](../how-to/long-attempts.md)",
        ),
        _row("`step(wait_within=)`", "no limit", "time that a request may wait for its Agent"),
    ]


def _list_agent_defaults() -> list[str]:
    breaker = Breaker()
    budget = (
        f"{_option(Agent, 'retry_budget'):.0%} of the calls of a process, plus {BURST:g} and {PER_SECOND:g} a second"
    )
    return [
        _row("`Agent(max_in_flight=)`", str(MAX_IN_FLIGHT), "concurrent attempts in each process"),
        _row(
            "`Agent(adaptive=)`",
            _shown(_option(Agent, "adaptive")),
            "[lower this number](../how-to/retries.md#adaptive-concurrency) while the service slows down",
        ),
        _row(
            "`Agent(reserve=)`",
            _shown(_option(Agent, "reserve")),
            "slots kept for [priorities 8 and 9](../how-to/priorities.md#reserve-slots-of-an-agent-for-urgent-calls)",
        ),
        _row("`Agent(limits=)`", "none", "[limits](../how-to/limits.md) of all processes together"),
        _row("`Agent(retry_budget=)`", budget, "[calls that may be retries](../how-to/retries.md); other retries wait"),
        _row(
            "`Agent(breaker=)`",
            f"opens when {breaker.failure_rate:.0%} of at least {breaker.minimum} calls failed within {breaker.window:g} s",
            "the [circuit breaker](../how-to/an-outage.md); requests wait while it is open",
        ),
        _row(
            "`Breaker(cool_off=, ramp=)`",
            f"{breaker.cool_off:g} s, {breaker.ramp:g} s",
            "until a canary is sent; until it closes",
        ),
        _row(
            "`Agent(weight=, preference=)`",
            f"{_option(Agent, 'weight'):g}, {_option(Agent, 'preference')}",
            "which of several Agents with the same steps gets a call: see [routing](../how-to/routing.md)",
        ),
    ]


def _list_task_defaults() -> list[str]:
    convoy = ConvoyPolicy()
    return [
        _row("`workflow(complete_within=)`", "no limit", "time of the whole task"),
        _row(
            "`workflow(undo_on_doubt=)`",
            f"`{_option(workflow, 'undo_on_doubt')}`",
            "the undo [passes a step in doubt](../errors-and-doubt.md) that has no compensation",
        ),
        _row(
            "`workflow(share=)`",
            "none",
            "share of [the capacity of a process](../how-to/priorities.md#divide-a-processs-capacity-between-workflows)",
        ),
        _row(
            "`submit(priority=)`",
            f"{_option(App.submit, 'priority')} of 0 to 9",
            f"9 goes first; each step is [a head start](../how-to/priorities.md) of {PRIORITY_STEP_SECONDS / 60:g} minutes",
        ),
        _row(
            "`ConvoyPolicy(head=, gap=)`",
            f"`{convoy.head}`, `{convoy.gap}`",
            "what a [convoy](../how-to/convoys.md) does when its head is held, and when a number is missing",
        ),
        _row("`ConvoyPolicy(gap_within=)`", f"{convoy.gap_within:g} s", "until a missing number opens an alert"),
        _row(
            "arguments, results, outputs",
            f"{PAYLOAD_BYTES_MAX:,} bytes",
            f"a warning is logged above {PAYLOAD_BYTES_WARN:,} bytes",
        ),
        _row("nesting of these", f"{PAYLOAD_DEPTH_MAX} levels", "lists and objects in one another"),
        _row(
            "submissions in transit",
            f"{ON_THE_WAY_MAX} in each process",
            "[further submissions wait](../performance.md#under-a-flood)",
        ),
    ]


def _list_leader_defaults() -> list[str]:
    return [
        _row(
            "`schedule(overlap=)`",
            f"`{_option(App.schedule, 'overlap')}`",
            "a run that is due while the previous one is open",
        ),
        _row("`schedule(catch_up=)`", "only the latest", "[runs that were missed](../how-to/schedules.md)"),
        _row(
            "`app.mutex(duration=)`",
            f"{_option(App.mutex, 'duration'):g} s",
            "the lease of a [leader](../how-to/leaders.md)",
        ),
    ]


def _option(owner: Callable[..., Any], name: str) -> Any:
    return inspect.signature(owner).parameters[name].default


def _shown(value: object) -> str:
    return "off" if value is False else "none" if value == 0 else str(value)


# --- invariants
def _invariants() -> str:
    lines = [
        "# Invariants",
        "",
        "What `arriero check` looks for in an exported history, and what the simulator judges each of its worlds by. The",
        "numbers are those of the design; those left out cannot be seen in a history.",
        "",
        *_table("", "holds in every clean history"),
        *(_row(name, text) for name, text in CHECKED.items()),
    ]
    return _page(*lines)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
