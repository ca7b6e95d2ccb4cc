"""What the store counted of calls, held against the tries that the world saw begin: no call may count twice."""

from collections import Counter
from collections.abc import Sequence

from arriero.audit.check import Violation
from arriero.core.agent_metrics import fold_counts, read_counts
from arriero.inspection.facts import CountsRow


def judge_counts(rows: Sequence[CountsRow], tries: Counter[str]) -> list[Violation]:
    """Judge the counts that are kept. ``tries``: that began, by Agent; some were cut off, and some counts are lost."""
    counted: Counter[str] = Counter()
    for row in rows:
        counts = read_counts(row.counts)
        counted.update({agent: of_agent.calls for agent, of_agent in counts.items()})
        if row.calls != sum(of_agent.calls for of_agent in counts.values()):
            return [Violation("bug", "", f"a row of counts says {row.calls} calls and holds others: {row.counts}")]
    found = [
        Violation("bug", agent, f"{count} calls were counted, {tries[agent]} tries began")
        for agent, count in sorted(counted.items())
        if count > tries[agent]
    ]
    folded = fold_counts(CountsRow(app="", process_no=0, minute=0, calls=0, counts="{}"), rows)
    if folded.calls != counted.total():
        found.append(Violation("bug", "", f"{counted.total()} calls were counted, {folded.calls} are left folded"))
    return found
