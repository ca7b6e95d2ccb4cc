"""Secrets and running attempts, which both databases find and keep by statements of the same names."""

from collections.abc import Sequence

from ..contract_parts import HeldAttempt
from .rows import SqlRows


class SqlRemoteAgentRows(SqlRows):
    """``engine.remote_agents.RemoteAgentRows`` inside one transaction."""

    def select_secret(self, name: str) -> str | None:
        row = self.ask("select_secret", {"name": name}).fetchone()
        return None if row is None else str(row[0])

    def add_secret(self, name: str, value: str) -> None:
        self.ask("add_secret", {"name": name, "value": value})
        self.arrive()

    def select_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        found = self.ask("select_running_attempts", {"step_nos": list(step_nos)}).fetchall()
        return [HeldAttempt(*row) for row in found]
