"""The App of tests that run it as a process: arriero calls the program of its only Agent, at ``PROGRAM_URL``."""

import base64
import os

from arriero import App, Attempt, Retry, workflow
from arriero.http import HttpAgent

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
shipping = HttpAgent(
    "shipping", url=os.environ.get("PROGRAM_URL", "http://127.0.0.1/"), secret=SECRET, allow_private=True
)


@shipping.step(complete_within=30, retry=Retry(tries=2, delay=0.01))
def book(attempt: Attempt, parcel: str) -> dict[str, str]: ...  # type: ignore[empty-body]


@workflow
async def ship(parcel: str) -> str:
    return (await book(parcel))["number"]


app = App("pushing", agents=[shipping], workflows=[ship])
