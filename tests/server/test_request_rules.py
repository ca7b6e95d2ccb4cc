"""What a request must fulfil before anything of it is done: host, origin, sizes; and what each answer says to browsers."""

import pytest
from server_world import open_server

from arriero.server.request_rules import RequestRules, judge_request, parse_host

RULES = RequestRules(hosts=frozenset({"localhost", "api.example.com", "::1"}), origins=frozenset({"https://desk.test"}))
HOST = (b"host", b"localhost:8478")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:80", "localhost"),
        ("localhost.", "localhost"),
        ("[::1]:8478", "::1"),
        ("[::1]", "::1"),
        ("", ""),
        ("localhost:x", ""),
        ("user@localhost", ""),
        ("evil.test/localhost", ""),
        ("localhost?x", ""),
        ("localhost#x", ""),
        ("evil.test localhost", ""),
        ("[::1", ""),
        ("[::1].evil.example", ""),
        ("[::1]x:80", ""),
        ("lócalhost", ""),
    ],
)
def test_a_host_is_its_name_without_port_or_nothing(value: str, name: str) -> None:
    assert parse_host(value) == name


@pytest.mark.parametrize(
    ("method", "headers", "code"),
    [
        ("GET", [HOST], ""),
        ("GET", [(b"host", b"api.example.com")], ""),
        ("GET", [(b"host", b"evil.test")], "misdirected"),
        ("GET", [(b"host", b"127.0.0.1.evil.test")], "misdirected"),
        ("GET", [], "misdirected"),
        ("GET", [HOST, HOST], "misdirected"),
        ("GET", [HOST, (b"origin", b"https://evil.test")], ""),
        ("GET", [HOST, (b"origin", b"https://evil.test"), (b"last-event-id", b"7")], "cross-origin"),
        ("GET", [HOST, (b"sec-fetch-site", b"cross-site"), (b"last-event-id", b"7")], "cross-origin"),
        ("GET", [HOST, (b"origin", b"https://desk.test"), (b"last-event-id", b"7")], ""),
        ("POST", [HOST, (b"origin", b"https://evil.test")], "cross-origin"),
        ("POST", [HOST, (b"origin", b"null")], "cross-origin"),
        ("POST", [HOST, (b"origin", b"http://localhost:9999")], "cross-origin"),
        ("POST", [HOST, (b"origin", b"http://localhost:8478")], ""),
        ("POST", [HOST, (b"origin", b"https://desk.test")], ""),
        ("POST", [HOST, (b"origin", b"https://desk.test"), (b"origin", b"https://evil.test")], "cross-origin"),
        ("DELETE", [HOST, (b"origin", b"https://desk.test.evil.test")], "cross-origin"),
        ("POST", [HOST, (b"sec-fetch-site", b"cross-site")], "cross-origin"),
        ("POST", [HOST, (b"sec-fetch-site", b"same-origin")], ""),
        ("POST", [HOST], ""),
        ("POST", [HOST, (b"idempotency-key", b"a")], ""),
        ("POST", [HOST, (b"idempotency-key", b"a"), (b"idempotency-key", b"b")], "header-repeated"),
        ("POST", [HOST, (b"idempotency-key", b"a"), (b"idempotency-key", b"a")], "header-repeated"),
        ("POST", [HOST, (b"content-type", b"application/json"), (b"content-type", b"text/plain")], "header-repeated"),
        ("GET", [HOST, (b"last-event-id", b"1"), (b"last-event-id", b"2")], "header-repeated"),
        ("POST", [HOST, (b"content-length", b"4")], ""),
        ("POST", [HOST, (b"transfer-encoding", b"chunked")], ""),
        ("POST", [HOST, (b"content-length", b"4"), (b"transfer-encoding", b"chunked")], "invalid-request"),
        ("GET", [HOST, *[(b"x", b"y")] * 63], ""),
        ("GET", [HOST, *[(b"x", b"y")] * 64], "headers-too-large"),
        ("GET", [HOST, (b"x", b"y" * 16_400)], "headers-too-large"),
    ],
)
def test_a_request_is_judged_by_host_origin_and_size(
    method: str, headers: list[tuple[bytes, bytes]], code: str
) -> None:
    problem = judge_request(RULES, method, b"/v1/tasks", headers)
    assert ("" if problem is None else problem.kind.code) == code


def test_a_path_with_a_query_that_is_too_long_is_refused() -> None:
    problem = judge_request(RULES, "GET", b"/" + b"a" * 8_192, [HOST])
    assert problem is not None
    assert problem.kind.status == 414


def test_any_host_is_known_only_where_that_was_said() -> None:
    assert judge_request(RequestRules(hosts=frozenset({"*"})), "GET", b"/", [(b"host", b"evil.test")]) is None


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/health/live", 200), ("/v1/tasks/none", 404), ("/v1/no/such", 404), ("/v1/tokens/x", 404)]
)
async def test_every_answer_tells_browsers_to_do_nothing_with_it(path: str, status: int) -> None:
    async with open_server() as world:
        answer = await world.http.get(path)
        assert answer.status_code == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


async def test_a_refused_request_reaches_no_route_and_has_the_same_headers() -> None:
    async with open_server() as world:
        answer = await world.http.get("/v1/health/live", headers={"Host": "evil.test"})
        assert (answer.status_code, answer.json()["code"]) == (421, "misdirected")
        assert answer.headers["cache-control"] == "no-store"


async def test_a_page_of_an_allowed_origin_is_answered_and_no_other_one_is() -> None:
    async with open_server(rules=RequestRules(origins=frozenset({"https://desk.test"}))) as world:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        answer = await world.http.options("/v1/tokens", headers={"Origin": "https://desk.test"} | asked)
        assert answer.headers["access-control-allow-origin"] == "https://desk.test"
        assert "access-control-allow-credentials" not in answer.headers
        other = await world.http.options("/v1/tokens", headers={"Origin": "https://evil.test"} | asked)
        assert "access-control-allow-origin" not in other.headers
