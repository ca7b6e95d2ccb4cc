"""Options about the HTTP API, which `arriero serve` and `arriero run` share."""

from typing import Any

import click

from .options import F

TOKEN_FILE = "arriero.token"
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--host", {"metavar": "ADDRESS", "help": "The address to listen on; 127.0.0.1 by default."}),
    ("--port", {"type": int, "help": "The port to listen on; 0 for one that is free."}),
    ("--unix-socket", {"metavar": "PATH", "help": "Listen on a Unix socket instead."}),
    ("--tls-cert", {"metavar": "FILE", "help": "The certificate chain, in PEM."}),
    ("--tls-key", {"metavar": "FILE", "help": "Its private key, in PEM."}),
    ("--behind-proxy", {"metavar": "HEADER", "help": "A proxy authenticates, and names the caller in this header."}),
    ("--proxy-address", {"metavar": "ADDRESS", "multiple": True, "help": "From where the proxy connects."}),
    (
        "--proxy-scope",
        {"metavar": "SCOPE", "multiple": True, "help": "What callers of the proxy may do; read by default."},
    ),
    ("--proxy-scopes-header", {"metavar": "HEADER", "help": "The header in which the proxy names scopes instead."}),
    ("--allow-host", {"metavar": "NAME", "multiple": True, "help": "A name by which the server is known."}),
    ("--allow-origin", {"metavar": "ORIGIN", "multiple": True, "help": "An origin of pages that may use the API."}),
)
_SETTINGS = {
    "proxy_address": "proxy_addresses",
    "proxy_scope": "proxy_scopes",
    "allow_host": "hosts",
    "allow_origin": "origins",
}


def http_options(function: F) -> F:
    """Add the options of the HTTP API; ``collect_http_flags`` reads them."""
    for name, about in reversed(_OPTIONS):
        function = click.option(name, **about)(function)
    text = f"Where the first token is written to, if there is none; ./{TOKEN_FILE} by default."
    return click.option("--token-file", metavar="FILE", help=text)(function)


def collect_http_flags(given: dict[str, Any]) -> dict[str, Any]:
    """Collect the options of the HTTP API as settings. What was not given is None."""
    return {f"http_{_SETTINGS.get(name, name)}": None if value == () else value for name, value in given.items()}
