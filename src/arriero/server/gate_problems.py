"""Problem types of authentication, rate limits, request checks and connections."""

from .problems import UNAUTHENTICATED, Problem, declare_problem

MISDIRECTED = declare_problem(
    "misdirected",
    421,
    "The server is not known by this name",
    "Add the name of the header Host to the setting http.hosts.",
)
CROSS_ORIGIN = declare_problem(
    "cross-origin",
    403,
    "A page of another origin may change nothing",
    "Add the origin to the setting http.origins, if the page is yours.",
)
TOO_MANY_REQUESTS = declare_problem(
    "too-many-requests", 429, "Too many requests", "Send the request again after `Retry-After` seconds."
)
TOO_MANY_AT_ONCE = declare_problem(
    "too-many-at-once",
    429,
    "The caller has too many requests under way",
    "Send the request again after `Retry-After` seconds, when others have ended.",
)
URI_TOO_LONG = declare_problem("uri-too-long", 414, "The path or the query is too long", "Send a shorter one.")
HEADERS_TOO_LARGE = declare_problem(
    "headers-too-large", 431, "The headers are too large", "Send fewer or shorter headers."
)
HEADER_REPEATED = declare_problem(
    "header-repeated", 400, "A header that counts once came twice", "Send it once; nothing was changed."
)
NOT_HTTP = declare_problem(
    "not-http",
    400,
    "What came is no request of HTTP/1.1",
    "Correct the program that sends it: RFC 9112 says how a request looks.",
)
PARTS_TOO_SMALL = declare_problem(
    "parts-too-small",
    400,
    "The body comes in parts that are too small",
    "Send larger chunks: collect what is written, and send it when there are some kilobytes.",
)
TOO_MANY_CONNECTIONS = declare_problem(
    "too-many-connections",
    503,
    "The server has too many connections",
    "Send the request again after `Retry-After` seconds; the setting http.connections_max is the limit.",
)
BODY_TOO_SLOW = declare_problem(
    "body-too-slow", 408, "The body did not arrive in time", "Send the request again; nothing was changed."
)
ANSWER_NOT_READ = declare_problem(
    "answer-not-read",
    408,
    "The caller did not read its answer",
    "Read answers as they come. The connection was cut off, so this code is only counted in the metrics.",
)
STOPPING = declare_problem(
    "stopping",
    503,
    "The server is about to end",
    "Send the request again after `Retry-After` seconds: to another server.",
)
REALM = 'Bearer realm="arriero"'


def build_credential_problem(detail: str, *, given: bool = True) -> Problem:
    """Build the refusal of a credential (RFC 6750). ``given``: False: there was none."""
    challenge = f'{REALM}, error="invalid_token"' if given else REALM
    return Problem(UNAUTHENTICATED, detail, headers={"WWW-Authenticate": challenge})


def build_rate_problem(detail: str, seconds: float) -> Problem:
    """Build the refusal of one request too many. ``seconds``: after which it may be sent again."""
    return Problem(TOO_MANY_REQUESTS, detail, headers={"Retry-After": str(max(1, round(seconds + 0.5)))})


def build_at_once_problem(detail: str) -> Problem:
    """Build the refusal of a request while its caller has too many others under way."""
    return Problem(TOO_MANY_AT_ONCE, detail, headers={"Retry-After": "1"})


def build_shutdown_problem() -> Problem:
    """Build the refusal of what a server that ends does not begin, or does not wait for any longer."""
    return Problem(STOPPING, "the server is about to end; nothing was changed", headers={"Retry-After": "1"})
