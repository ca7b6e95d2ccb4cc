"""Versions of code: which one still has how many tasks, and whether a process with it is alive."""

import msgspec

from ..client.code_versions import load_code_versions
from ..client.session import Session
from ..explain.code_versions import CodeVersionView
from ..model.tokens import Scope
from .declaration import NoArguments, OperationDeclaration


class CodeVersionsAnswer(msgspec.Struct, frozen=True):
    """Versions by App, workflow and version."""

    versions: tuple[CodeVersionView, ...]


async def list_code_versions(session: Session, _: NoArguments) -> CodeVersionsAnswer:
    """List the versions of the code of all workflows: which has how many open and held tasks, and how many processes alive have it.

    A task is continued by the version that began it. A line without a version has the tasks that none has begun.
    """
    return CodeVersionsAnswer(tuple(await load_code_versions(session.store)))


LIST = OperationDeclaration(
    noun="code-version",
    name="versions",
    function=list_code_versions,
    summary="List the versions of workflows, with their open tasks and processes.",
    arguments=NoArguments,
    answer=CodeVersionsAnswer,
    scopes=(Scope.READ,),
)
