"""Draws an overview of a store as lines for a terminal: values in, lines of text out. Texts from outside are escaped."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from ..client.agents import AgentView
from ..client.overview import AgentRoom, MinuteOfCalls, OpenTasks, Overview
from ..text.escaping import one_line
from ..text.format import format_count, format_duration
from .output import display_width, format_time
from .timeline_view import Screen, break_lines, find_mark, fit
from .top_state import PANES, Pane, TopState

GAP = "  "
CELL_MAX = 30  # of all columns but the last, which takes what is left
LAST_MIN = 14  # columns for the last one, before others are left out
SPARKS, PLAIN_SPARKS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
HINT = "tab pane   j k move   enter open task   p pause r resume Agent   ? help   q quit"
HELP = (
    ("tab, shift-tab", "the next pane, the one before: tasks, agents, findings, processes"),
    ("up, down, k, j", "select a line; page up, page down, home and end move further"),
    ("enter", "open the selected task: its timeline, live; escape comes back"),
    ("p", "pause the selected Agent: no process takes a request of it until it is resumed"),
    ("r", "resume the selected Agent"),
    ("space", "read the store now"),
    ("q", "quit"),
)


def draw_top(
    overview: Overview | None, state: TopState, screen: Screen, *, by: str = "", note: str = "", age: float = 0.0
) -> list[Text]:
    """Draw the overview.

    Args:
        overview: None: none was read yet.
        by: who signs verbs.
        note: of what went wrong with the last reading; empty: nothing.
        age: seconds since it was read.
    Returns: lines that fit the window, exactly as many as it is high or fewer.
    """
    foot = _draw_foot(state, screen, by, note)
    room = max(screen.height - len(foot), 1)
    if state.has_help:
        body = _draw_help(screen)
    elif overview is None:
        body = [Text("" if note else "the store is read ...")]  # the foot has the note
    else:
        head = _draw_head(overview, screen, age)
        body = [*head, *_draw_pane(overview, state, screen, max(room - len(head), 0))]
    body = body[:room]
    lines = [*body, *(Text() for _ in range(room - len(body))), *foot][: screen.height]
    return [_cut(line, screen.width) for line in lines]


def _draw_head(overview: Overview, screen: Screen, age: float) -> list[Text]:
    """Draw what stands above the panes: the numbers of the store, the calls of its minutes, and whether it needs an operator."""
    is_healthy = not any(finding.level == "care" for finding in overview.findings)
    mark = find_mark("processed" if is_healthy else "held", screen)
    health = Text(f"{mark} {format_health(overview)}", "green" if is_healthy else "red")
    return [*draw_numbers(overview, screen.width, age), *_draw_sparks(overview.calls, screen), health]


def draw_numbers(overview: Overview, width: int, age: float = 0.0) -> list[Text]:
    """Draw the numbers of a store, broken into lines of that width. ``age``: seconds since they were read."""
    old = f"   read {format_duration(age)} ago" if age >= 10 else ""
    waits = overview.oldest_wait_seconds
    oldest = "" if waits is None else f"; the oldest free task has waited {format_duration(waits)}"
    leader = overview.leader
    led = (
        "no Supervisor leads"
        if leader is None
        else f"{one_line(leader.process) or 'a process'} leads, term {leader.term}"
    )
    alive = sum(process.is_alive for process in overview.processes)
    facts = (
        ("tasks", f"{_format_tasks(overview.tasks)}{oldest}"),
        ("last hour", _format_newest(overview)),
        ("calls", _format_calls(overview.hour)),
        ("processes", f"{alive:,} alive; {led}"),
    )
    drawn = [Text(f"{one_line(overview.store)}   {format_time(overview.now)}{old}", "bold")]
    for name, text in facts:
        drawn += [Text(line) for line in break_lines(text, width, first=f"{name:10} ", hanging=11)]
    return drawn


def format_health(overview: Overview) -> str:
    """Format in a few words whether anything needs an operator."""
    count = sum(finding.level == "care" for finding in overview.findings)
    if not count:
        return "nothing needs an operator"
    return f"{format_count(count, 'thing')} {'needs' if count == 1 else 'need'} an operator"


def _format_tasks(tasks: OpenTasks) -> str:
    def tell(count: int, what: str) -> str:
        return f"{count:,}{' or more' if count >= tasks.counted_max else ''} {what}"

    words = [tell(tasks.running, "running"), tell(tasks.due, "due"), tell(tasks.later, "later")]
    return ", ".join([*words, tell(tasks.in_convoy, "wait in a convoy"), tell(tasks.held, "held")])


def _format_newest(overview: Overview) -> str:
    newest = overview.newest
    if not newest.count:
        return "no task was submitted"
    states = ", ".join(f"{count:,} {one_line(state)}" for state, count in newest.states.items())
    parts = [f"{format_count(newest.count, 'task')}{' (the newest)' if newest.is_cut else ''}: {states}"]
    parts += [f"{newest.submitted_per_minute:,.1f} submitted and {newest.ended_per_minute or 0:,.1f} ended a minute"]
    if newest.failed_share is not None:
        parts.append(f"{100 * newest.failed_share:.1f} % not processed")
    if newest.p50_seconds is not None and newest.p99_seconds is not None:
        parts.append(f"p50 {format_duration(newest.p50_seconds)}, p99 {format_duration(newest.p99_seconds)}")
    return "; ".join(parts)


def _format_calls(hour: MinuteOfCalls) -> str:
    if not hour.calls:
        return "no call of an Agent ended within the last hour"
    parts = [f"{hour.calls:,} within the last hour", f"{100 * hour.failed / hour.calls:.1f} % failed"]
    if hour.p50_seconds is not None and hour.p99_seconds is not None:
        parts.append(f"p50 {format_duration(hour.p50_seconds)}, p99 {format_duration(hour.p99_seconds)}")
    return "; ".join(parts)


def _draw_sparks(minutes: Sequence[MinuteOfCalls], screen: Screen) -> list[Text]:
    """Two lines of 60 characters: calls a minute, and failed ones, where the window is wide enough."""
    highest = max((minute.calls for minute in minutes), default=0)
    if screen.width < len(minutes) + 24 or not highest:
        return []
    marks = SPARKS if screen.has_symbols else PLAIN_SPARKS

    def draw(counts: Sequence[int]) -> str:
        top = len(marks) - 1
        return "".join(marks[0 if not count else max(round(count * top / highest), 1)] for count in counts)

    calls = Text("           ").append(draw([minute.calls for minute in minutes]), "cyan")
    failed = Text("           ").append(draw([minute.failed for minute in minutes]), "red")
    return [calls.append(f" {highest:,} a minute at most"), failed.append(" failed")]


# --- panes
def _draw_pane(overview: Overview, state: TopState, screen: Screen, room: int) -> list[Text]:
    tabs = Text()
    for at, name in enumerate(PANES):
        tabs.append(f" {name} ", "reverse" if at == state.pane else "bright_black").append(" ")
    if state.pane in range(len(PANES)) and not screen.has_symbols:
        tabs.append(f"[{PANES[state.pane]}]")
    columns, rows, colours = _list_rows(overview, PANES[state.pane], screen)
    lines = draw_rows(columns, rows, screen.width, colours)
    titles, lines = lines[:1], lines[1:]
    if not rows:
        return [Text(), _cut(tabs, screen.width), Text(_EMPTY[PANES[state.pane]], "bright_black")][:room]
    fits = max(room - 3, 1)
    first = max(min(state.line - fits // 2, len(lines) - fits), 0)
    for at, line in enumerate(lines):
        if at == state.line:
            line.stylize("reverse")
    return [Text(), _cut(tabs, screen.width), *titles, *lines[first : first + fits]][:room]


_EMPTY: dict[Pane, str] = {
    "tasks": "no task is held, and none is tried again",
    "agents": "no process hosts an Agent, and none has requests",
    "findings": "nothing needs an operator",
    "processes": "no process is alive on this store: arriero run MODULE:APP",
}


def _list_rows(
    overview: Overview, pane: Pane, screen: Screen
) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """The titles, the cells and the colours of the rows of a pane."""
    if pane == "tasks":
        return list_task_rows(overview, screen)
    if pane == "agents":
        return (
            AGENT_COLUMNS,
            [list_agent_cells(view, overview.rooms) for view in overview.agents],
            list(map(_find_colour, overview.agents)),
        )
    if pane == "findings":
        found: list[tuple[str, ...]] = [
            (one.level, one.about, f"{one.says}{f' -> {one.remedy}' if one.remedy else ''}")
            for one in overview.findings
        ]
        return FINDING_COLUMNS, found, ["red" if one.level == "care" else "" for one in overview.findings]
    rows: list[tuple[str, ...]] = [
        (str(one.no), one.app, "alive" if one.is_alive else "lapsed", ",".join(one.roles), one.name)
        for one in overview.processes
    ]
    return PROCESS_COLUMNS, rows, ["" if one.is_alive else "yellow" for one in overview.processes]


TASK_COLUMNS = ("", "task", "state", "step", "since or next", "reason")
AGENT_COLUMNS = (
    "agent",
    "state",
    "health",
    "free",
    "waiting",
    "running",
    "app",
    "calls",
    "failed",
    "p50",
    "p99",
    "why",
)
FINDING_COLUMNS = ("level", "about", "says")
PROCESS_COLUMNS = ("no", "app", "lease", "roles", "process")


def list_task_rows(overview: Overview, screen: Screen) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """List the tasks that are held and those that are tried again; a task that is both comes once."""
    rows: dict[str, tuple[str, ...]] = {}
    colours: dict[str, str] = {}
    for task in overview.held:
        rows[task.id] = (find_mark("held", screen), task.id, "held", task.step, format_time(task.since), task.reason)
        colours[task.id] = "red"
    for step in overview.retrying:
        if step.id not in rows:
            when = "runs now" if step.next_at is None else format_time(step.next_at)
            state = f"attempt {step.attempt}"
            rows[step.id] = (find_mark("processing", screen), step.id, state, step.step, when, step.reason)
            colours[step.id] = "yellow"
    return TASK_COLUMNS, list(rows.values()), list(colours.values())


def list_agent_cells(view: AgentView, rooms: Iterable[AgentRoom]) -> tuple[str, ...]:
    """List the cells of an Agent: its state, room, load, and the calls of the last hour."""
    own = next((one for one in rooms if (one.agent, one.app) == (view.agent, view.app)), None)
    health = "" if own is None else f"{own.health:.0%}"
    free = "" if own is None or own.free is None else f"{own.free}/{own.places}"
    calls = ("", "", "", "")
    if view.metrics is not None and view.metrics.recent[-1].calls:
        hour = view.metrics.recent[-1]
        share = "" if hour.failed_share is None else f"{100 * hour.failed_share:.1f} %"
        quantiles = ("" if one is None else format_duration(one) for one in (hour.p50_seconds, hour.p99_seconds))
        calls = (f"{hour.calls:,}", share, *quantiles)  # type: ignore[assignment]  # there are two
    name = f"{view.agent}[{view.target}]" if view.target else view.agent
    why = view.pause_reason if view.paused_at is not None else view.reason
    return (name, view.shown, health, free, f"{view.waiting:,}", f"{view.running:,}", view.app, *calls, why)


def _find_colour(view: AgentView) -> str:
    return "" if view.shown == "closed" else "yellow" if view.shown == "half_open" else "red"


def draw_rows(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, colours: Sequence[str] = ()
) -> list[Text]:
    """Draw rows under their titles, a line for each. The last column takes what is left; others are left out where it is too little.

    Columns that are empty in all rows are left out, too.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    shown = [at for at in range(len(columns)) if any(row[at] for row in cells) or at == len(columns) - 1]
    widths = {at: min(max(display_width(row[at]) for row in [columns, *cells]), CELL_MAX) for at in shown}
    while len(shown) > 2 and sum(widths[at] for at in shown[:-1]) + len(GAP) * (len(shown) - 1) + LAST_MIN > width:
        del shown[-2]
    last = max(width - sum(widths[at] for at in shown[:-1]) - len(GAP) * (len(shown) - 1), 1)
    drawn = []
    for number, row in enumerate([list(columns), *cells]):
        parts = [fit(row[at], widths[at]) for at in shown[:-1]] + [fit(row[shown[-1]], last)]
        colour = "bright_black" if not number else colours[number - 1] if colours else ""
        drawn.append(_cut(Text(GAP.join(parts), colour), width))
    return drawn


# --- foot and help
def _draw_foot(state: TopState, screen: Screen, by: str, note: str) -> list[Text]:
    lines = [Text(one_line(note), "yellow")] if note else []
    if state.prompt is not None:
        prompt = state.prompt
        signs = f" as {one_line(by)}" if by else ""
        lines.append(
            Text(f"{prompt.verb} Agent {one_line(prompt.agent.agent)}{signs}; enter sends it, escape gives it up")
        )
        typed = one_line(prompt.reason) if prompt.reason.strip() else prompt.reason
        room = max(screen.width - len("reason: ") - 1, 1)
        lines.append(Text(f"reason: {typed[-room:]}_", "bold"))
    elif state.message:
        lines.append(Text(one_line(state.message), "bold"))
    else:
        lines.append(Text(HINT, "bright_black"))
    return [_cut(line, screen.width) for line in lines]


def _draw_help(screen: Screen) -> list[Text]:
    lines = [Text("keys", "bold")]
    for keys, does in HELP:
        lines += [Text(line) for line in break_lines(does, screen.width, first=f"{keys:16} ", hanging=17)]
    return [*lines, Text(), Text("any key goes back", "bright_black")]


def _cut(line: Text, width: int) -> Text:
    line.truncate(max(width, 1))
    return line
