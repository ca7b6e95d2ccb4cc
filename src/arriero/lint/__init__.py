"""Looks through the code of workflows, and of the user's own functions that it calls, for what a replay cannot repeat."""

import gc
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from ..system.source_files import is_foreign
from .rules import Registry
from .sources import SourceFile, Sources, SourceUnreadable, show_path
from .values import Reachable, list_reachable, live
from .walk import Hit, Walk

FUNCTIONS_MAX = 100_000  # looked through for one App; each is looked through once
ALLOW = "# arriero: allow REASON"


class Hazard(msgspec.Struct, frozen=True):
    """A finding of the lint.

    Args:
        path: of the file, relative if it is below the current folder.
        column: from 1, as the line.
        workflows: that reach it.
        through: the functions by which the first of them reaches it, from the outermost; empty: it stands in the workflow.
        calls: the full name of what is called; empty for a comment that allows nothing.
        fact: why it is a fault.
        instead: what to write.
    """

    path: str
    line: int
    column: int
    workflows: tuple[str, ...]
    through: tuple[str, ...]
    calls: str
    fact: str
    instead: str


class UnreadCode(msgspec.Struct, frozen=True):
    """Code of a workflow that was not looked through, and why."""

    workflow: str
    reason: str


class LintReport(msgspec.Struct, frozen=True):
    """The findings of the lint. ``workflows``: how many there are; ``allowed``: findings that a comment accepts."""

    workflows: int
    functions: int
    allowed: int
    findings: tuple[Hazard, ...]
    unread: tuple[UnreadCode, ...]


def find_hazards(workflows: Iterable[tuple[str, Callable[..., Any]]]) -> LintReport:
    """Look through the code of workflows. Modules of Python and of the user that it imports lazily are imported.

    Args:
        workflows: the plain function of each, with its name.
    """
    collects = gc.isenabled()
    gc.disable()  # trees are many small objects that all live until the end: the collector takes half of the time
    try:
        return _Lint(list(workflows)).report()
    finally:
        if collects:
            gc.enable()


class _Seen(NamedTuple):
    """A function that was looked through."""

    name: str
    path: str
    file: SourceFile
    walk: Walk
    lines: range


class _Lint:
    """One run of the lint over the workflows of an App."""

    def __init__(self, workflows: list[tuple[str, Callable[..., Any]]]) -> None:
        self._workflows = workflows
        self._sources = Sources()
        self._registry = Registry()
        self._seen: dict[tuple[int, int], _Seen | str | None] = {}  # a text: why it could not be read
        self._kept: list[Reachable] = []  # an id counts as long as its object lives
        self._packages = {_find_package(function) for _, function in workflows}
        self._places: dict[tuple[str, int, int, str], tuple[_Seen, Hit, list[str], tuple[str, ...]]] = {}
        self._unread: dict[tuple[str, str], UnreadCode] = {}

    def report(self) -> LintReport:
        """Look through all workflows, and report what was found."""
        for name, function in self._workflows:
            self._follow(name, function)
        used: set[tuple[str, int]] = set()
        findings = []
        allowed = 0
        for seen, hit, workflows, through in self._places.values():
            reason = seen.file.allowances.get(hit.line)
            if reason:
                allowed += 1
            else:
                findings.append(_build_hazard(seen, hit, tuple(workflows), through, has_comment=reason is not None))
            if reason is not None:
                used.add((seen.path, hit.line))
        findings += self._find_unused_allowances(used)
        findings.sort(key=lambda one: (one.path, one.line, one.column, one.calls))
        functions = sum(isinstance(one, _Seen) for one in self._seen.values())
        return LintReport(len(self._workflows), functions, allowed, tuple(findings), tuple(self._unread.values()))

    def _follow(self, workflow: str, function: Callable[..., Any]) -> None:
        """Look through a workflow and all that it reaches, nearest first: so the shortest way to a finding is shown."""
        found = list(list_reachable(live(function), is_called=True))
        begin = [one for one in found if not is_foreign(one.function.__code__.co_filename)] or found
        if not begin:
            self._note_unread(workflow, "it is not written in Python")
        roots = {one.identify() for one in begin}
        reached: set[tuple[int, int]] = set()
        waiting: deque[tuple[Reachable, tuple[str, ...]]] = deque((one, ()) for one in begin)
        while waiting:
            one, through = waiting.popleft()
            key = one.identify()
            if key in reached:
                continue
            reached.add(key)
            is_root = key in roots
            seen = self._look_through(one, is_root=is_root)
            if isinstance(seen, str):
                name = "" if is_root else f"{one.function.__code__.co_qualname}, which it calls: "
                self._note_unread(workflow, f"{name}{seen}")
            if not isinstance(seen, _Seen):
                continue
            way = through if is_root else (*through, seen.name)
            for hit in seen.walk.hits.values():
                place = (seen.path, hit.line, hit.column, hit.found.name)
                workflows = self._places.setdefault(place, (seen, hit, [], way))[2]
                if workflow not in workflows[-1:]:
                    workflows.append(workflow)
            for failure in seen.walk.failures:
                self._note_unread(workflow, f"{seen.name}: {failure}")
            waiting.extend((inner, way) for inner in seen.walk.calls)

    def _look_through(self, one: Reachable, *, is_root: bool) -> _Seen | str | None:
        """Look through a function once. Returns: None for one that is not the user's; a text: why it cannot be read."""
        key = one.identify()
        if key not in self._seen:
            self._kept.append(one)
            self._seen[key] = None
            if is_root or self._is_own(one.function):
                self._seen[key] = self._read(one, is_root=is_root)
        return self._seen[key]

    def _read(self, one: Reachable, *, is_root: bool) -> _Seen | str | None:
        code = one.function.__code__
        if len(self._seen) > FUNCTIONS_MAX:
            return f"the lint stops after {FUNCTIONS_MAX:,} functions"
        try:
            file, node = self._sources.find_node(one.function)
        except SourceUnreadable as error:
            is_generated = code.co_filename.startswith("<") and code.co_name.startswith("__")  # as of dataclasses
            return None if is_generated and not is_root else str(error)
        try:
            walk = Walk(one, file, node, self._registry)
        except RecursionError:
            return "its code is nested too deeply"
        except Exception as error:  # of an object of the user's that refuses to be looked at
            return f"it cannot be followed: {type(error).__name__}: {error}"
        lines = range(code.co_firstlineno, (node.end_lineno or node.lineno) + 1)
        return _Seen(code.co_qualname.replace(".<locals>", ""), code.co_filename, file, walk, lines)

    def _is_own(self, function: types.FunctionType) -> bool:
        package = str(function.__globals__.get("__name__", "")).partition(".")[0]
        return package != "arriero" and (package in self._packages or not is_foreign(function.__code__.co_filename))

    def _note_unread(self, workflow: str, reason: str) -> None:
        self._unread.setdefault((workflow, reason), UnreadCode(workflow, reason))

    def _find_unused_allowances(self, used: set[tuple[str, int]]) -> list[Hazard]:
        """Find the comments in functions that were looked through which allow nothing."""
        found: dict[tuple[str, int], Hazard] = {}
        for seen in self._seen.values():
            if not isinstance(seen, _Seen):
                continue
            for line in seen.file.allowances:
                if line in seen.lines and (seen.path, line) not in used:
                    column = seen.file.lines[line - 1].rindex("#") + 1
                    found[seen.path, line] = Hazard(
                        show_path(seen.path), line, column, (), (), "", "this comment allows nothing", "remove it"
                    )
        return list(found.values())


def _build_hazard(
    seen: _Seen, hit: Hit, workflows: tuple[str, ...], through: tuple[str, ...], *, has_comment: bool
) -> Hazard:
    rule = hit.found.rule
    instead = f"{rule.instead}; a comment that accepts it needs a reason: {ALLOW}" if has_comment else rule.instead
    calls = hit.found.name.removeprefix("builtins.")
    return Hazard(show_path(seen.path), hit.line, hit.column, workflows, through, calls, rule.fact, instead)


def _find_package(function: Callable[..., Any]) -> str:
    return (getattr(function, "__module__", "") or "").partition(".")[0]
