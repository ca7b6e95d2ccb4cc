"""Real PostgreSQL servers for tests, examples and benchmarks; with ways to kill and freeze them.

with Server.start(16) as server:
    url = server.create_database("shop")

A server ends with the process that started it, and leaves no folder. Linux only.

``python -m arriero.testing.postgres`` runs one in the foreground.
"""

from .binaries import installations
from .programs import NotInstalled, ProgramFailed
from .server import Server

__all__ = [
    "NotInstalled",
    "ProgramFailed",
    "Server",
    "installations",
]
