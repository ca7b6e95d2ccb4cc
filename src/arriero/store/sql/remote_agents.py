"""Secrets and running attempts, which both databases find and keep by statements of the same names."""

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

    def select_running_attempts(self, process_no: int) -> list[HeldAttempt]:
        return [HeldAttempt(*row) for row in self.ask("select_running_attempts", {"process_no": process_no}).fetchall()]
