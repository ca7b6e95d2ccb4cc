"""Start PostgreSQL and the shop, be its customer, and say what happened. Exit code 1: something is not as promised.

python examples/django_shop/run.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from examples.shop_customer import buy, run  # noqa: E402  # found from the repository's root


def visit() -> list[str]:
    """Be the shop's customer; answers what went wrong."""
    from django.db import connections
    from django.test import Client

    from examples.django_shop.shop import app
    from examples.django_shop.web import Order

    with connections["default"].schema_editor() as editor:  # a real project has migrations
        editor.create_model(Order)
    customer = Client()
    try:
        with app.sync.running():  # or none of it here, and `arriero run` on other hosts
            return buy(
                lambda path, body: customer.post(path, dict(body), content_type="application/json"), customer.get
            )
    finally:
        connections.close_all()


if __name__ == "__main__":
    sys.exit(run(visit))
