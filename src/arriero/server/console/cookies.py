"""Cookies of the console, and where a page may lead back to."""

from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

OUTCOME = "arriero_outcome"  # what the last act has come to, for the page that is shown next
OUTCOME_LENGTH_MAX = 1_000


def get_root(request: Request) -> str:
    """Get the path under which the console is mounted; empty: it is not."""
    return str(request.scope.get("root_path", ""))


def get_here(request: Request) -> str:
    """Get the path and the query of the page that is asked for, as they came."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    path = raw.split(b"?")[0].decode("ascii", "replace")
    return path + ("?" + request.url.query if request.url.query else "")


def get_cookie_path(request: Request) -> str:
    """Get the path under which the console's cookies are sent."""
    return get_root(request) + "/"


def set_cookie(request: Request, answer: Response, name: str, value: str, *, seconds: int | None = None) -> None:
    """Set a cookie that no script reads, and that no form of another site sends."""
    answer.set_cookie(
        name,
        value,
        max_age=seconds,
        path=get_cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",  # a link in an alert opens its page; only what changes nothing is a GET
    )


def keep_outcome(request: Request, answer: Response, says: str) -> None:
    """Show a sentence on the page that the caller sees next."""
    set_cookie(request, answer, OUTCOME, quote(says[:OUTCOME_LENGTH_MAX]), seconds=60)


def read_outcome(request: Request) -> str:
    """Read the sentence of the last act; empty: there is none."""
    return unquote(request.cookies.get(OUTCOME, ""))[:OUTCOME_LENGTH_MAX]


def check_back(path: str, root: str) -> str:
    """Return a path of this console to continue with; its first page, if the path leads anywhere else."""
    is_local = path.startswith(f"{root}/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_local else f"{root}/"
