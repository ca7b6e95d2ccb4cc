"""Start PostgreSQL and the shop, be its customer, and say what happened. Exit code 1: something is not as promised.

python examples/fastapi_shop/run.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fastapi.testclient import TestClient  # noqa: E402

from examples.shop_customer import buy, run  # noqa: E402  # found from the repository's root


def visit() -> list[str]:
    """Be the shop's customer; answers what went wrong."""
    from examples.fastapi_shop.web import api

    with TestClient(api) as customer:
        return buy(lambda path, body: customer.post(path, json=dict(body)), customer.get)


if __name__ == "__main__":
    sys.exit(run(visit))
