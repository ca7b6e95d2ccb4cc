"""The shop as a process that is killed and started again. ``python -m examples.approval.shop_process PORT`` is that process."""

import os
import sys
from pathlib import Path
from unittest import mock

import uvicorn

from examples.worker import KilledProcess

BREAK = "SHOP_ACCEPTS_FORGED"  # in the environment: the shop of the negative control verifies no signature


class ShopProcess(KilledProcess):
    """The process of the shop.

    Args:
        environment: for it, besides that of this process.
        log: what it prints is added to this file.
    """

    def __init__(self, port: int, environment: dict[str, str], log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        arguments = ["-m", "examples.approval.shop_process", str(port)]
        super().__init__(arguments, {**environment, "ARRIERO_PUBLIC_URL": self.url}, log)


def main() -> None:
    """Serve the shop on a port of this machine."""
    from examples.approval import web, webhooks

    if os.environ.get(BREAK):
        mock.patch.object(webhooks, "is_genuine", return_value=True).start()
    uvicorn.run(web.api, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
