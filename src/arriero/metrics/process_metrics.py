"""Metrics of this process: what it counted since it began, and what it does now."""

from collections.abc import Iterator

from ..client.session import Session
from ..runtime.node import NodeSession
from ..store.committer import CommitCounts
from ..version import __version__
from . import families as names
from .families import Family, Histogram, Values

ENDED_STATES = ("processed", "compensated", "error")


def build_process_metrics(session: Session) -> Iterator[tuple[Family, Values]]:
    """Build what this process says of itself, also while its App is not open or the store is silent."""
    counts = {"engine": session.commit_counts, "submissions": session.submission_counts}
    node = None if session.node is None else session.node.session
    yield names.PROCESS, [((session.app, __version__), 1)]
    yield names.RUNNING, [((), 0 if node is None or node.lost.is_set() else 1)]
    yield names.COMMIT_COMMANDS, [((kind,), _build_sizes(of)) for kind, of in counts.items()]
    refused = session.commit_counts.refused + session.submission_counts.refused
    yield names.REFUSED, [((verdict,), count) for verdict, count in sorted(refused.items())]
    yield names.ENDED, [((state,), session.commit_counts.ended[state]) for state in ENDED_STATES]
    yield (
        names.HTTP_REQUESTS,
        [((name, str(status)), count) for (name, status), count in sorted(session.http_requests.items())],
    )
    yield names.HTTP_PROBLEMS, [((code,), count) for code, count in sorted(session.http_problems.items())]
    yield names.SUBMISSIONS_WAITING, [((), session.count_submissions_waiting())]
    if node is not None and node.has_started:
        yield from _build_node(node)


def _build_node(node: NodeSession) -> Iterator[tuple[Family, Values]]:
    places = node.agents.places
    yield names.LEASE_TRUSTED, [((), float(node.membership.is_trusted()))]
    yield names.LEADING, [((), float(node.leader.is_leading()))]
    yield names.LOOP_ALIVE, [((str(loop),), float(alive)) for loop, alive in node.list_loop_liveness().items()]
    yield names.COMMANDS_WAITING, [(("engine",), node.committer.on_the_way)]
    yield names.ATTEMPTS, [((agent,), places.used[agent]) for agent in places.agents]
    yield names.PLACES, [((agent,), places.count_places(agent)) for agent in places.agents]


def _build_sizes(counts: CommitCounts) -> Histogram:
    """Commits by their commands: the bit length n holds those of at most 2^n - 1 commands."""
    sizes = list(counts.sizes)
    bounds = [2.0**length - 1 for length in range(1, len(sizes))]
    return Histogram(bounds, [*sizes[1:], 0], counts.commands)
