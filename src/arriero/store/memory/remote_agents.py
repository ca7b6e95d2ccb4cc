"""Secrets and running attempts in the memory store."""

from collections.abc import Sequence

from ...model import StepState
from ..contract import HeldAttempt
from ..sql.agent_rows import RemoteAgentRows
from .rows import MemoryUpkeep


class MemoryRemoteAgents(MemoryUpkeep, RemoteAgentRows):
    """See ``RemoteAgentRows``."""

    def select_secret(self, name: str) -> str | None:
        return self.secrets.get(name)

    def add_secret(self, name: str, value: str) -> None:
        if name not in self.secrets:
            self._put(self.secrets, name, value)

    def select_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        found: list[HeldAttempt] = []
        for step_no in step_nos:
            step = self.step(step_no)
            if step is not None and step.state is StepState.RUNNING and step.complete_by is not None:
                found.append(HeldAttempt(step.step_no, step.fence, step.complete_by))
        return sorted(found)
