"""The latest values that a task and its steps have published, for status pages."""

import msgspec

from . import Instant

PUBLISHED_BYTES_MAX = 10_000  # of one value as JSON text: it is written again with each change, and read with each view


def format_version(link: int, head: str, published: int) -> str:
    """Format how a task stands, by its last commit and its published values: another text is another state.

    Args:
        link, head: of its last commit; a store that was restored has another hash under the same number.
        published: sum of the numbers of its rows.
    """
    return f"{link}-{head[:16]}-{published}"


class Published(msgspec.Struct, frozen=True, gc=False):
    """A value that a command publishes.

    Args:
        ordinal: of the step; 0: workflow code published it.
        value: JSON text.
        fence: of the attempt that published it; 0: workflow code did.
        at: when it did, by the store's clock as its process knows it: no older value of the same attempt replaces a newer one.
    """

    ordinal: int
    value: str
    fence: int
    at: Instant


class PublishedRow(msgspec.Struct, frozen=True, gc=False):
    """The latest value of a task (``ordinal`` 0) or of one of its steps.

    Args:
        value: JSON text; None: the workflow code has published nothing, only a step has.
        number: 1, 2, ... of the values that were written here.
        at: when it was published.
        fence: of the attempt that published it; 0: workflow code did.
        status_at: of the task's row: when the last status of kind ``progress`` may be read; None: there was none.
    """

    task_no: int
    ordinal: int
    value: str | None
    number: int
    at: Instant
    fence: int = 0
    status_at: Instant | None = None
