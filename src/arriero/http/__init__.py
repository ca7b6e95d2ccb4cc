"""HTTP clients for steps: they send the key and the remaining time, and raise what an answer means for the try.

Needs the extra ``http``. The classes are those of httpx2, with the same names and arguments::

    from arriero.http import AsyncClient

    @bank.resource
    async def client() -> AsyncIterator[AsyncClient]:
        async with AsyncClient(base_url="https://bank.example") as opened:
            yield opened

    @bank.step
    async def charge(attempt: Attempt, order: str, pence: int) -> str:
        answer = await client().post("/charges", json={"order": order, "pence": pence})
        return answer.json()["receipt"]
"""

from ..errors import describe_install

try:
    import httpx2 as _httpx2  # noqa: F401  # one clear error before the modules below need it
except ImportError as missing:
    raise ImportError(f"arriero.http needs httpx2: {describe_install('http')}") from missing

from .agent import HttpAgent
from .client import AsyncClient, SyncClient
from .meaning import Meaning
from .requests import EFFECT_FREE

__all__ = ["EFFECT_FREE", "AsyncClient", "HttpAgent", "Meaning", "SyncClient"]
