"""Operations on processes: list those that are not retired."""

import msgspec

from ..client.processes import ProcessView, load_process_views
from ..client.session import Session
from ..model.tokens import Scope
from .declaration import NoArguments, OperationDeclaration


class ProcessListAnswer(msgspec.Struct, frozen=True):
    """Processes by number, so in the order of their starts."""

    processes: tuple[ProcessView, ...]


async def list_processes(session: Session, _: NoArguments) -> ProcessListAnswer:
    """List the processes on the store: the roles, the App and the versions of each, and whether it is alive.

    alive: it renews its lease. draining: it was asked to end, and takes nothing new. lost: its lease has lapsed, and what it held
    is freed.
    """
    return ProcessListAnswer(await load_process_views(session.store))


LIST = OperationDeclaration(
    noun="process",
    name="list",
    function=list_processes,
    summary="List the processes on the store, with their roles, Apps and versions of code.",
    arguments=NoArguments,
    answer=ProcessListAnswer,
    scopes=(Scope.READ,),
)
