"""A Django project in one file: the order's row and its task in one ``transaction.atomic()``.

``run.py`` beside it starts a server of its own and is its customer.
"""

import json
from typing import Any
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings

from arriero import TaskCompensated, TaskFailed, UnknownTask
from examples.django_shop.shop import DATABASE, app, fulfil

_where = urlsplit(DATABASE)
settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="only for this example",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _where.path.lstrip("/"),
            "USER": _where.username or "",
            "PASSWORD": unquote(_where.password or ""),
            "HOST": _where.hostname or "",
            "PORT": str(_where.port or ""),
        }
    },
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402  # they need the settings
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402


class Order(models.Model):  # type: ignore[misc]  # Django has no types of its own
    id = models.CharField(primary_key=True, max_length=40)
    pence = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "orders"


class OverTheLimit(Exception):
    """A new customer may not buy for so much."""


def place(request: HttpRequest) -> JsonResponse:
    """An order: its row and its task are committed together, or neither is."""
    new: dict[str, Any] = json.loads(request.body)
    try:
        with transaction.atomic():
            Order.objects.create(id=new["id"], pence=new["pence"])
            call = fulfil(new["id"], new["pieces"], new["pence"])
            task = app.sync.submit(call, task_id=new["id"], connection=connection)
            if new["pence"] > 100_000:
                raise OverTheLimit
    except OverTheLimit:
        return JsonResponse({"detail": "over the limit of a new customer"}, status=422)
    return JsonResponse({"task": task.id}, status=202)


def orders(request: HttpRequest) -> JsonResponse:
    """All orders, or a new one."""
    if request.method == "POST":
        return place(request)
    return JsonResponse(list(Order.objects.order_by("id").values_list("id", flat=True)), safe=False)


def show(request: HttpRequest, order_id: str) -> JsonResponse:
    """What became of an order."""
    try:
        return JsonResponse({"receipt": app.sync.task(order_id, fulfil).result(timeout=5)})
    except UnknownTask:
        return JsonResponse({"detail": "no such order"}, status=404)
    except TimeoutError:
        return JsonResponse({"detail": "under way"}, status=202)
    except TaskCompensated as undone:
        return JsonResponse({"detail": undone.public}, status=409)
    except TaskFailed as failed:
        return JsonResponse({"detail": failed.public}, status=500)


urlpatterns = [path("orders", orders), path("orders/<str:order_id>", show)]
