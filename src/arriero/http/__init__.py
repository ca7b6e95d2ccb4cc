"""HTTP clients for steps: they send the key and the remaining time, and say what each answer means for the attempt.

Needs the extra ``http``. The classes are those of httpx2 with the same names and arguments::

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

from .client import AsyncClient, Client, InDoubt
from .meaning import Meaning

__all__ = ["AsyncClient", "Client", "InDoubt", "Meaning"]
