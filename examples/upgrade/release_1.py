"""The first release: an order is charged, waits for its approval, and is shipped."""

from arriero import App, workflow
from examples.upgrade.services import approved, bank, charge, ship, stock


@workflow
async def fulfil(number: int) -> str:
    """Fulfil an order."""
    receipt = await charge(number)
    await approved.wait()
    await ship(number)
    return receipt


app = App("upgrade", agents=[bank, stock], workflows=[fulfil])
