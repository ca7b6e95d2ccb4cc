"""The state of the screen of ``arriero top``, and what each key makes of it: values in, values out."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from ..client.agents import AgentView
from ..client.overview import Overview
from . import keys

Pane = Literal["tasks", "agents", "findings", "processes"]
PANES: tuple[Pane, ...] = ("tasks", "agents", "findings", "processes")
PAGE = 10  # lines that a page key moves
REASON_MAX = 500


class Prompt(msgspec.Struct, frozen=True):
    """A verb on an Agent whose reason is typed."""

    verb: Literal["pause", "resume"]
    agent: AgentView
    reason: str = ""


class TopState(msgspec.Struct, frozen=True):
    """The state of the screen.

    Args:
        selected: the line of each pane, by the order of ``PANES``.
        message: the outcome of the last verb; the next key clears it.
    """

    pane: int = 0
    selected: tuple[int, ...] = (0,) * len(PANES)
    has_help: bool = False
    prompt: Prompt | None = None
    message: str = ""

    @property
    def line(self) -> int:
        """The selected line of the pane that is shown."""
        return self.selected[self.pane]


class OpenTask(msgspec.Struct, frozen=True):
    """Show the timeline of a task."""

    id: str


class ActOnAgent(msgspec.Struct, frozen=True):
    """Carry out a verb on an Agent."""

    verb: str
    agent: str
    app: str
    target: str
    reason: str


class Quit(msgspec.Struct, frozen=True):
    """End the command."""


class ReadAgain(msgspec.Struct, frozen=True):
    """Read the overview now."""


Effect = OpenTask | ActOnAgent | Quit | ReadAgain


def list_task_ids(overview: Overview) -> list[str]:
    """List the tasks of the pane, as it shows them: those that are held, then those that are tried again."""
    return list(dict.fromkeys([*(task.id for task in overview.held), *(task.id for task in overview.retrying)]))


def count_lines(state: TopState, overview: Overview | None) -> int:
    """Count the lines of the pane that is shown."""
    if overview is None:
        return 0
    lines: dict[Pane, int] = {
        "tasks": len(list_task_ids(overview)),
        "agents": len(overview.agents),
        "findings": len(overview.findings),
        "processes": len(overview.processes),
    }
    return lines[PANES[state.pane]]


def settle(state: TopState, overview: Overview | None) -> TopState:
    """Keep the selected line within the pane, which may have become shorter."""
    return _select(state, state.line, overview)


def press(state: TopState, key: str, overview: Overview | None) -> tuple[TopState, Effect | None]:
    """Return what a key makes of the screen, and what is to be done.

    Args:
        key: as ``keys.read_keys`` names it.
        overview: as it is shown; None: none was read yet.
    """
    if key == keys.INTERRUPT:
        return state, Quit()
    if state.prompt is not None:
        return _type(state, state.prompt, key)
    state = replace(state, message="")
    if state.has_help:
        return replace(state, has_help=False), None
    if key in _MOVES:
        return _select(state, state.line + _MOVES[key], overview), None
    match key:
        case "q":
            return state, Quit()
        case "?" | "h":
            return replace(state, has_help=True), None
        case " " | "g":
            return state, ReadAgain()
        case keys.TAB | keys.RIGHT | "l":
            return settle(replace(state, pane=(state.pane + 1) % len(PANES)), overview), None
        case keys.BACK_TAB | keys.LEFT:
            return settle(replace(state, pane=(state.pane - 1) % len(PANES)), overview), None
        case keys.ENTER:
            return _open(state, overview)
        case "p" | "r":
            return _ask(state, "pause" if key == "p" else "resume", overview), None
    return state, None


_MOVES = {
    keys.UP: -1,
    "k": -1,
    keys.DOWN: 1,
    "j": 1,
    keys.PAGE_UP: -PAGE,
    keys.PAGE_DOWN: PAGE,
    keys.HOME: -(10**6),
    keys.END: 10**6,
}


def _select(state: TopState, line: int, overview: Overview | None) -> TopState:
    line = max(min(line, count_lines(state, overview) - 1), 0)
    selected = tuple(line if at == state.pane else one for at, one in enumerate(state.selected))
    return replace(state, selected=selected)


def _open(state: TopState, overview: Overview | None) -> tuple[TopState, Effect | None]:
    if overview is None or PANES[state.pane] != "tasks":
        return replace(state, message="Enter opens a task: select one in the pane of tasks"), None
    ids = list_task_ids(overview)
    return (state, OpenTask(ids[state.line])) if state.line < len(ids) else (state, None)


def _ask(state: TopState, verb: Literal["pause", "resume"], overview: Overview | None) -> TopState:
    """Ask for the reason of a verb on the selected Agent, unless it is so already."""
    if overview is None or PANES[state.pane] != "agents" or state.line >= len(overview.agents):
        return replace(state, message=f"{verb} is for an Agent: select one in the pane of Agents")
    agent = overview.agents[state.line]
    is_paused = agent.paused_at is not None
    if is_paused == (verb == "pause"):
        return replace(state, message=f"Agent {agent.agent} is {'paused already' if is_paused else 'not paused'}")
    return replace(state, prompt=Prompt(verb, agent))


def _type(state: TopState, prompt: Prompt, key: str) -> tuple[TopState, Effect | None]:
    """Type a reason: Enter sends the verb, Escape gives it up."""
    if key == keys.ESCAPE:
        return replace(state, prompt=None, message=f"{prompt.verb}: nothing was changed"), None
    if key == keys.ENTER:
        if not prompt.reason.strip():
            return state, None
        agent = prompt.agent
        act = ActOnAgent(prompt.verb, agent.agent, agent.app, agent.target, prompt.reason.strip())
        return replace(state, prompt=None), act
    reason = prompt.reason[:-1] if key == keys.ERASE else prompt.reason + key if len(key) == 1 else prompt.reason
    return replace(state, prompt=replace(prompt, reason=reason[:REASON_MAX])), None
