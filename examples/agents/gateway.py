"""The process that gives requests out: the App with the role http, and the HTTP API on a port of this machine.

python -m examples.agents.gateway PORT
"""

import asyncio
import sys

import uvicorn

from arriero.server import build_application
from arriero.server.token_authentication import TokenAuthenticator

from .shop import app


async def serve(port: int) -> None:
    """Serve until a signal, then drain."""
    async with app.running(roles=["http"]):
        server = build_application(app, TokenAuthenticator(app.session))
        config = uvicorn.Config(server, "127.0.0.1", port, log_level="warning", lifespan="off")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
