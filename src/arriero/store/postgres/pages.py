"""The history page by page, all pages of one snapshot."""

from typing import Any

import psycopg

from ...errors import StoreError
from ...model import HistoryRow
from .row_decoding import history_of
from .session import PostgresSession, Statements

PAGE = 500


class Pages:
    """Pages of the history, all of one snapshot. ``session`` is used by nobody else until ``end``."""

    def __init__(self, session: PostgresSession, statements: Statements, task_no: int | None) -> None:
        self._session = session
        self._sql = statements("select_history" if task_no is None else "select_task_history")
        self._task_no = task_no
        self._after = 0
        self._begun_on: psycopg.Connection[Any] | None = None

    def next(self) -> list[HistoryRow]:
        """The next page; empty after the last. Raises StoreError."""
        try:
            with self._session.watch():
                if self._begun_on is None:
                    self._session.begin_snapshot()
                    self._begun_on = self._session.get_connection()
                connection = self._session.get_connection()
                if self._begun_on is not connection:
                    raise StoreError("the connection was lost, and its snapshot with it; read the history again")
                asked = {"after": self._after, "task_no": self._task_no, "limit": PAGE}
                rows = [history_of(row) for row in connection.execute(self._sql, asked).fetchall()]
        except psycopg.Error as error:
            raise self._session.translate_error(error) from error
        if rows:
            self._after = rows[-1].no if self._task_no is None else rows[-1].link
        return rows

    def end(self) -> None:
        """Let the snapshot go; the session may be used again."""
        if self._begun_on is not None:
            try:
                self._session.get_connection().execute("ROLLBACK")
            except (psycopg.Error, StoreError):
                self._session.close()
