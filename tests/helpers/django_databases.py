"""Django's settings. They can be made once in a process, so all tests of a worker share them."""

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

_NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def describe_database(url: str) -> dict[str, str]:
    """An entry of DATABASES for a server."""
    given = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{name: str(given.get(told) or "") for name, told in _NAMES.items()},
    }


def configure_django(url: str) -> None:
    """Set Django up with the worker's database of joined submissions, and a file in memory."""
    if not settings.configured:
        file = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        settings.configure(DATABASES={"default": describe_database(url), "file": file})
        django.setup()
