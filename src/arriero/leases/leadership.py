"""One term of leadership, as the work sees it."""

from ..core.lease import LeadershipEnd
from ..errors import LeadershipLost
from .contract import Lease
from .keeper import LeaseKeeper

END_TEXTS = {
    LeadershipEnd.RELEASED: "it was given back",
    LeadershipEnd.REFUSED: "the provider refused the renewal: the lease lapsed, was broken, or is another's",
    LeadershipEnd.UNRENEWED: "no renewal was answered in time",
    LeadershipEnd.HUNG: "the work gave no proof of progress within progress_within",
    LeadershipEnd.DISCONNECTED: "the provider says that the lease is gone: its session ended, or it was broken",
}


class Leadership:
    """A term of a lease. ``work(leadership)`` gets it from ``DistributedMutex``; its methods may be called from any thread.

    Attributes:
        name: of the lease.
        term: the fencing token for guarded writes; it grows with each new leader.
        holder: this contender's name, as ``arriero lease show`` has it.
        lease: which lease it is.
        duration: of the lease in seconds; None: it has no end.
    """

    def __init__(self, keeper: LeaseKeeper) -> None:
        assert keeper.grant is not None
        self._keeper = keeper
        self.lease: Lease = keeper.lease
        self.name = keeper.grant.name
        self.term = keeper.grant.term
        self.holder = keeper.grant.holder
        self.duration = keeper.settings.duration

    def is_held(self) -> bool:
        """Returns True while this process may act as the leader.

        It looks at the trust window on this process's own clock: from the start of the last successful renewal for the
        duration less the margin. Nothing is asked of the provider.
        """
        return self._keeper.is_held()

    @property
    def seconds_left(self) -> float:
        """Seconds for which the lease may be trusted if no renewal succeeds any more; 0: it is lost."""
        return self._keeper.get_seconds_left()

    @property
    def trusted_until(self) -> float:
        """End of the trust window, on the machine's clock since boot; 0: the term has ended.

        An interrupted connection does not shorten it: nobody else is granted the lease before it is over.
        """
        belief = self._keeper.belief
        return belief.trusted_until if belief is not None and self._keeper.end is None else 0.0

    @property
    def why_lost(self) -> str:
        """Reason for the end of the term, in words; empty while it goes on."""
        return "" if self._keeper.end is None else END_TEXTS[self._keeper.end]

    def beat(self) -> None:
        """Say that the work makes progress. With ``progress_within``, renewal stops without it."""
        self._keeper.beat()

    def raise_if_lost(self) -> None:
        """Stop a plain function, which cannot be cancelled, if another may lead. Raises LeadershipLost."""
        if not self.is_held():
            why = self.why_lost or "its trust window is over, or the connection to the provider is interrupted"
            raise LeadershipLost(f"lease {self.name!r}, term {self.term}: {why}; stop to act as the leader")

    def __repr__(self) -> str:
        return f"<Leadership of {self.name}: term {self.term}, {'held' if self.is_held() else 'lost'}>"
