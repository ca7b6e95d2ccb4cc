"""What the HTTP API of this process has answered, for its metrics."""

from collections import Counter


class HttpCounts:
    """Counts since the process began. Their keys are names of the code, never what a caller sent.

    ``requests``: answers by operation and status; an empty operation: no operation has the path and method, or the request was
    refused before. ``problems``: refusals and failures by the code of their problem.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.problems: Counter[str] = Counter()
