"""The shop as a process that is killed and started again. ``python -m examples.approval.shop_process PORT`` is that process."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import uvicorn

ROOT = Path(__file__).resolve().parents[2]
BREAK = "SHOP_ACCEPTS_FORGED"  # in the environment: the shop of the negative control verifies no signature


class ShopProcess:
    """The process of the shop.

    Args:
        environment: for it, besides that of this process.
        log: what it prints is added to this file.
    """

    def __init__(self, port: int, environment: dict[str, str], log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.kills = 0
        self._command = [sys.executable, "-m", "examples.approval.shop_process", str(port)]
        self._environment = {**os.environ, **environment, "ARRIERO_PUBLIC_URL": self.url}
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.wait()

    def kill_and_restart(self) -> None:
        """Kill it during its work, and start it again."""
        self.kills += 1
        self.kill()
        self._start()


def main() -> None:
    """Serve the shop on a port of this machine."""
    from examples.approval import web, webhooks

    if os.environ.get(BREAK):
        mock.patch.object(webhooks, "is_genuine", return_value=True).start()
    uvicorn.run(web.api, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
