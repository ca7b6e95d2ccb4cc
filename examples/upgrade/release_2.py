"""The second release: the goods are reserved before the approval. Orders that wait for it already keep the old branch."""

import arriero
from arriero import App, workflow
from examples.upgrade.services import approved, bank, charge, reserve, ship, stock


@workflow
async def fulfil(number: int) -> str:
    """Fulfil an order."""
    receipt = await charge(number)
    if arriero.patched("reserve-first"):
        await reserve(number)
    await approved.wait()
    await ship(number)
    return receipt


app = App("upgrade", agents=[bank, stock], workflows=[fulfil])
