"""Values of the labels of a metric."""

from collections.abc import Iterable, Sequence

import msgspec


class Histogram(msgspec.Struct, frozen=True):
    """A histogram. ``counts``: how many lie within each bound and above the one before; one more: above all bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float

    def list_buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as text, with how many lie within each; the last bound is infinite."""
        total, found = 0, []
        for bound, count in zip((*map(_format_bound, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


def _format_bound(bound: float) -> str:
    return repr(float(bound))


Labels = Sequence[str]
Values = Iterable[tuple[Labels, float | Histogram]]
