"""Settings of the HTTP API: the table ``[http]`` of ``arriero.toml``, and where others reach it."""

from typing import Annotated

import msgspec

from .values import COUNT, HEADER, NAMES, NETWORKS, ORIGINS, PORT, PUBLIC_URL, SCOPES, TEXT, SettingInfo, ValueKind

TABLE = "http"
PORT_DEFAULT = 8478  # nobody is registered for it, and no well-known program listens there


def _declare_setting(kind: ValueKind, flag: str, text: str, unit: str = "") -> SettingInfo:
    return SettingInfo(kind, text, TABLE, unit, flag)


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A part of ``config.Configuration``."""

    public_url: Annotated[
        str,
        SettingInfo(
            PUBLIC_URL,
            "Where services reach the HTTP API, like https://shop.example.com/arriero. Callbacks have their URLs below it.",
        ),
    ] = ""
    http_host: Annotated[
        str,
        _declare_setting(
            TEXT,
            "--host",
            "The address to listen on. Another one than of this machine itself needs TLS and a token, or a proxy.",
        ),
    ] = "127.0.0.1"
    http_port: Annotated[int, _declare_setting(PORT, "--port", "The port to listen on.")] = PORT_DEFAULT
    http_unix_socket: Annotated[
        str, _declare_setting(TEXT, "--unix-socket", "The path of a Unix socket to listen on, instead of an address.")
    ] = ""
    http_tls_cert: Annotated[
        str, _declare_setting(TEXT, "--tls-cert", "The file of the certificate chain, in PEM.")
    ] = ""
    http_tls_key: Annotated[str, _declare_setting(TEXT, "--tls-key", "The file of its private key, in PEM.")] = ""
    http_behind_proxy: Annotated[
        str,
        _declare_setting(
            HEADER,
            "--behind-proxy",
            "The header in which a proxy that authenticates names the caller. Tokens work beside it.",
        ),
    ] = ""
    http_proxy_addresses: Annotated[
        tuple[str, ...],
        _declare_setting(NETWORKS, "--proxy-address", "From where that proxy connects; nobody else is answered then."),
    ] = ("127.0.0.1", "::1")
    http_proxy_scopes: Annotated[
        tuple[str, ...], _declare_setting(SCOPES, "--proxy-scope", "What a caller may do whom the proxy names.")
    ] = ("read",)
    http_proxy_scopes_header: Annotated[
        str,
        _declare_setting(
            HEADER,
            "--proxy-scopes-header",
            "The header in which the proxy names the scopes of the caller, instead of proxy_scopes.",
        ),
    ] = ""
    http_hosts: Annotated[
        tuple[str, ...],
        _declare_setting(
            NAMES, "--allow-host", "Names by which the server is known, beside those of this machine itself."
        ),
    ] = ()
    http_origins: Annotated[
        tuple[str, ...],
        _declare_setting(
            ORIGINS, "--allow-origin", "Origins of pages of others that may use the API, like https://desk.example.com."
        ),
    ] = ()
    http_requests_per_second_max: Annotated[
        int,
        _declare_setting(COUNT, "", "Requests of one token in a second; five times as many after a pause.", "requests"),
    ] = 100
    http_connections_max: Annotated[
        int,
        _declare_setting(
            COUNT,
            "",
            "Concurrent connections and requests. For one more, the connection that has waited longest for a request is closed.",
            "connections",
        ),
    ] = 500
    http_token_requests_max: Annotated[
        int,
        _declare_setting(
            COUNT,
            "",
            "Concurrent requests of one token; half of connections_max at most. One more is answered with 429.",
            "requests",
        ),
    ] = 200
    http_token_waits_max: Annotated[
        int,
        _declare_setting(
            COUNT, "", "Those of them that wait for news, like long polls; half of the requests at most.", "requests"
        ),
    ] = 100
