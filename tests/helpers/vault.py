"""An App in whose tasks every payload and every reason is a secret that is easy to search for, and requests that reach every route."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx2
from runtime_world import eventually
from starlette.requests import Request as HttpRequest

from arriero import (
    Agent,
    App,
    ApprovalNeeded,
    Attempt,
    Callback,
    Permanent,
    Request,
    Retry,
    Signal,
    Supervision,
    TaskFailed,
    Transient,
    ask,
    callback,
    keep_convoy_state,
    publish,
    sleep,
    workflow,
)
from arriero.model.tokens import Reach
from arriero.runtime.settings import ROLES, Settings
from arriero.server.application import ApiServer, build_application
from arriero.server.caller_limits import RatePolicy
from arriero.server.calls import Caller
from arriero.server.problems import UNAUTHENTICATED, Problem
from arriero.server.routing import GateLimits

WHY = {"reason": "it was checked"}
TRY = {**WHY, "dry_run": True}
UNLIMITED = GateLimits(rate=RatePolicy(1e9, 10**9), agent_rate=RatePolicy(1e9, 10**9))


class ScopesInTokens:
    """Takes a token as the list of the scopes that its holder has, with commas between them."""

    async def authenticate(self, request: HttpRequest) -> Caller:
        scopes = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not scopes:
            raise Problem(UNAUTHENTICATED, "no token")
        return Caller(f"holder-{scopes}", frozenset(scopes.split(",")))


class Ask(NamedTuple):
    """A request for one operation. ``operation``: its method and the template of its path."""

    operation: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})


class Vault:
    """An App with secrets. ``name`` of the App is in each of them and in each id."""

    def __init__(self, name: str, store: str) -> None:
        self.name = name
        self.payload = f"payload-secret-of-{name}"  # every payload holds it
        self.reason = f"reason-secret-of-{name}"  # every reason of a failure holds it
        self.store = store
        self.callbacks: list[str] = []  # paths, the last one of a task that waits
        self.question = 0  # number of the one that is open
        self.app = self._build_app()

    def _build_app(self) -> App:
        payload, reason, name = self.payload, self.reason, self.name
        once, hold = Supervision(attempts=1), Supervision(attempts=1, then="hold")
        till, bank = Agent(f"till-{name}", breaker=None), Agent(f"bank-{name}", breaker=None)
        down, spare = Agent(f"down-{name}"), Agent(f"spare-{name}")

        @till.step(supervision=once)
        async def charge(attempt: Attempt, order: str) -> str:
            return f"{payload}: receipt of {order}"

        @till.step(supervision=once)
        async def decline(attempt: Attempt, order: str) -> str:
            raise Permanent(f"{reason}: declined", code="declined", details={"card": payload}, public="Please pay.")

        @till.step(supervision=hold)
        async def audit(attempt: Attempt, order: str) -> str:
            raise Permanent(f"{reason}: closed", code="closed", details={"book": payload})

        @till.step(retry=Retry(tries=1), supervision=Supervision(attempts=3))
        async def knock(attempt: Attempt, order: str) -> str:
            await attempt.checkpoint(f"{payload}: checkpoint")
            raise Transient(f"{reason}: busy", code="busy", details={"pan": payload}, retry_after=600)

        @down.step(retry=Retry(tries=1), supervision=Supervision(attempts=3))
        async def call(attempt: Attempt, order: str) -> str:
            raise Transient(f"{reason}: down", details={"pan": payload}, retry_after=600, unavailable=True)

        @spare.step()
        async def idle(attempt: Attempt) -> None: ...

        @bank.step(remote=True, complete_within=600, supervision=Supervision(attempts=3))
        def pay(attempt: Attempt, order: str) -> str: ...  # type: ignore[empty-body]

        @workflow
        async def sell(order: str) -> str:
            keep_convoy_state({"last": payload})
            publish({"last": payload})
            await charge(order)
            return f"{payload}: sold"

        @workflow
        async def refuse(order: str) -> str:
            await charge(order)
            return await decline(order)

        @workflow
        async def inspect_order(order: str) -> str:
            return await audit(order)

        @workflow
        async def retry_order(order: str) -> str:
            return await knock(order)

        @workflow
        async def call_order(order: str) -> str:
            return await call(order)

        @workflow(complete_within=7_200)
        async def wait_long(order: str) -> None:
            await sleep(3_600.0)

        @workflow
        async def pay_order(order: str) -> str:
            return await pay(order)

        @till.step()
        async def tell(done: Callback[str]) -> None:
            self.callbacks.append(f"/v1/callbacks/{done.token}")

        @workflow
        async def wait_for_bank(order: str) -> str:
            receipt = callback(str)
            await tell(receipt)
            return await receipt

        said = Signal("said", str)

        @workflow
        async def decide(order: str) -> bool:
            return await ask(f"{reason}: refund?", bool, of="finance")  # who may read alerts may read it

        @workflow
        async def listen(order: str) -> str:
            while True:
                await said.wait()

        asked = Request("asked", str, str)

        @workflow
        async def converse(order: str) -> str:
            while True:
                request = await asked.receive()
                if request.value.endswith("no"):
                    request.refuse(f"{reason}: no")
                else:
                    request.reply(f"{payload}: reply")

        self.workflows = [
            sell,
            refuse,
            inspect_order,
            retry_order,
            call_order,
            wait_long,
            pay_order,
            listen,
            converse,
            wait_for_bank,
            decide,
        ]
        app = App(name, agents=[till, bank, down, spare], workflows=self.workflows, store=self.store)
        app.session.settings = Settings(public_url="http://localhost")
        return app

    def id(self, what: str) -> str:
        return f"{self.name}-{what}"

    async def submit(self, what: str, workflow_name: str, **options: Any) -> None:
        """Submit a task of this id whose argument is a secret."""
        (called,) = [one for one in self.workflows if one.name == workflow_name]
        await self.app.submit(called(f"{self.payload}: order"), task_id=self.id(what), **options)

    async def end(self, *whats: str) -> None:
        """Wait until tasks have ended, in whatever state."""
        for what in whats:
            with suppress(TaskFailed):
                await self.app.task(self.id(what)).result(timeout=60)

    async def plant(self) -> None:
        """Bring a task into each state, with all that may be kept of one."""
        queue, convoy = self.id("desk"), self.id("ana")
        await self.submit("sold", "sell", reply_to=queue, convoy=convoy)
        await self.submit("refused", "refuse", reply_to=queue)
        await self.submit("held", "inspect_order", reply_to=queue, convoy=self.id("stuck"))
        await self.submit("behind", "wait_long", convoy=self.id("stuck"))
        await self.submit("by-hand", "inspect_order")
        await self.submit("edited", "inspect_order")
        await self.submit("retried", "retry_order")
        await self.submit("called", "call_order")
        await self.submit("sleeping", "wait_long")
        await self.submit("listening", "listen")
        await self.submit("conversing", "converse")
        await self.submit("asking", "decide")
        await self.end("sold", "refused", "held", "by-hand", "edited")
        hand = {"by": "ana", "reason": "asked by the bank"}
        await self.app.task(self.id("by-hand")).answer(**hand, step="audit", result=f"{self.payload}: by hand")
        edited = {"order": f"{self.payload}: edited"}
        held = self.app.task(self.id("edited"))
        try:
            await held.resubmit(**hand, arguments=edited, step="audit")
        except ApprovalNeeded:
            await held.resubmit(by="bob", reason="asked, too", arguments=edited, step="audit")
        await self.end("by-hand", "edited")
        await eventually(self._has_failed)
        sell = self.workflows[0]
        await self.app.schedules.add(self.id("nightly"), sell(self.payload), every=3_600.0, **hand)
        entry: Any = {"workflow": "sell"}
        async with httpx2.AsyncClient(transport=self.transport(), base_url="http://localhost") as http:
            body = {"entries": [{**entry, "arguments": {"order": self.payload}, "id": self.id("entry")}]}
            admin = {"Authorization": "Bearer admin"}
            await http.put(f"/v1/ledgers/{self.id('ledger')}", json=body, headers=admin)
        await self.end("entry")

    async def _has_failed(self) -> bool | None:
        views = [await self.app.task(self.id(what)).view() for what in ("retried", "called")]
        return all(view.steps and view.steps[-1].failure is not None for view in views) or None

    async def _has_told(self, known: int) -> bool | None:
        return len(self.callbacks) > known or None

    async def plant_for(self, turn: str) -> None:
        """Bring what requests of one walk use up."""
        await self.submit(f"stuck-{turn}", "inspect_order", convoy=self.id(f"stuck-{turn}"))
        await self.submit(f"next-{turn}", "wait_long", convoy=self.id(f"stuck-{turn}"))
        await self.submit(f"last-{turn}", "wait_long", convoy=self.id(f"stuck-{turn}"))
        await self.submit(f"held-{turn}", "inspect_order")
        for number in range(5):
            await self.submit(f"pay-{turn}-{number}", "pay_order")
        known = len(self.callbacks)
        await self.submit(f"bank-{turn}", "wait_for_bank")
        for open_question in await self.app.session.store.questions(within=Reach(apps=(self.name,))):
            self.question = open_question.no
        await self.end(f"stuck-{turn}", f"held-{turn}")
        await eventually(partial(self._has_told, known))
        (sell, *_) = self.workflows
        for what in ("run", "gone"):
            await self.app.schedules.add(
                self.id(f"{what}-{turn}"), sell(self.payload), every=3_600.0, by="ana", reason="asked by sales"
            )

    def transport(self, **options: Any) -> httpx2.ASGITransport:
        """Reach a server of this App without a socket."""
        return httpx2.ASGITransport(app=self.build_server(**options), raise_app_exceptions=False)

    def build_server(self, authenticator: Any = None) -> ApiServer:
        return build_application(self.app, authenticator or ScopesInTokens(), limits=UNLIMITED)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Vault"]:
        async with self.app.running(roles=ROLES):
            yield self

    async def take_for(self, http: httpx2.AsyncClient, headers: dict[str, str]) -> list[dict[str, Any]]:
        """Take three requests of the Agent outside of Python."""
        taken: list[dict[str, Any]] = []
        while len(taken) < 3:
            answer = await http.post(
                f"/v1/agents/{self.id_of_agent('bank')}/requests:take",
                json={"limit": 3 - len(taken), "wait_seconds": 15},
                headers=headers,
            )
            taken += answer.json()["requests"]
        return [{"task": one["task"], "capability": one["capability"]} for one in taken]

    def id_of_agent(self, agent: str) -> str:
        return f"{agent}-{self.name}"

    def list_requests(self, turn: str, taken: list[dict[str, Any]]) -> list[Ask]:
        """Requests that reach every operation of the API, in an order in which each can be answered."""
        return [
            *self._list_requests_of_tasks(turn),
            *self._list_requests_of_verbs(turn),
            *self._list_requests_of_convoys(turn),
            *self._list_requests_of_schedules(turn),
            *self._list_requests_of_agents(taken),
            *self._list_requests_of_the_store(),
        ]

    def _list_requests_of_tasks(self, turn: str) -> list[Ask]:
        queue, new = self.id("desk"), {"workflow": "refuse", "arguments": {"order": "lamp"}}
        found = [
            Ask("POST /v1/tasks", "/v1/tasks", {**new, "id": self.id(f"new-{turn}")}, {"Prefer": "wait=30"}),
            Ask("POST /v1/tasks", "/v1/tasks", {**new, "id": self.id("new")}, {"Prefer": "wait=30"}),
            Ask("POST /v1/tasks:submit", "/v1/tasks:submit", {"tasks": [{**new, "id": self.id("many")}]}),
            Ask("GET /v1/replies/{queue}", f"/v1/replies/{queue}?limit=200"),
            Ask("GET /v1/replies/{queue}/events", f"/v1/replies/{queue}/events"),
            Ask("POST /v1/replies/{queue}:acknowledge", f"/v1/replies/{queue}:acknowledge", {"numbers": [999_999]}),
            Ask("PUT /v1/ledgers/{ledger_id}", f"/v1/ledgers/{self.id(f'l-{turn}')}", {"entries": [new]}),
            Ask("POST /v1/ledgers/{ledger_id}:stream", f"/v1/ledgers/{self.id(f's-{turn}')}:stream", b'{"workflow":"x"}'),
            Ask("GET /v1/ledgers/{ledger_id}", f"/v1/ledgers/{self.id('ledger')}"),
            Ask("GET /v1/ledgers", "/v1/ledgers?state=all&limit=200"),
            Ask("GET /v1/tasks", "/v1/tasks?limit=200"),
        ]  # fmt: skip
        found[7] = found[7]._replace(path=f"{found[7].path}?bad=set_aside")
        for what in ("sold", "refused", "held", "behind", "by-hand", "edited", "retried", "called", "sleeping"):
            for page in ("", "/history?limit=200", "/children?limit=200", "/explain", "/result", "/inputs?of=signals"):
                path = f"/v1/tasks/{{task_id}}{page.partition('?')[0]}"
                found.append(Ask(f"GET {path}", f"/v1/tasks/{self.id(what)}{page}"))
        found.append(Ask("GET /v1/tasks/{task_id}/inputs", f"/v1/tasks/{self.id('held')}/inputs"))
        for ended in ("sold", "held"):  # a stream ends with its task
            found.append(Ask("GET /v1/tasks/{task_id}/changes", f"/v1/tasks/{self.id(ended)}/changes"))
        say = f"/v1/tasks/{self.id('listening')}/signals"
        found += [
            Ask("POST /v1/tasks/{task_id}/signals/{name}", f"{say}/said", {"value": f"{self.payload}: said"}),
            Ask("GET /v1/tasks/{task_id}/signals", say),
            Ask(
                "POST /v1/tasks/{task_id}/callbacks/{name}",
                f"/v1/tasks/{self.id(f'bank-{turn}')}/callbacks/callback",
                {"value": f"{self.payload}: receipt"},
            ),
            Ask("POST /v1/callbacks/{token}", self.callbacks[-1], f"{self.payload}: receipt"),
            Ask("GET /v1/questions", "/v1/questions?limit=200"),
            Ask("GET /v1/questions/{number}", f"/v1/questions/{self.question}"),
        ]
        request, path = "POST /v1/tasks/{task_id}/requests/{name}", f"/v1/tasks/{self.id('conversing')}/requests/asked"
        for value in ("yes", "no"):
            found.append(
                Ask(request, path, {"value": f"{self.payload}: {value}", "request_id": value}, {"Prefer": "wait=30"})
            )
        found.append(Ask("GET /v1/tasks/{task_id}/signals", f"/v1/tasks/{self.id('conversing')}/signals"))
        return found

    def _list_requests_of_verbs(self, turn: str) -> list[Ask]:
        sleeping, held = self.id("sleeping"), self.id("held")
        edit = {"arguments": {"order": f"{self.payload}: asked"}, "step": "audit"}
        named: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
            ("resubmit", held, {}, {"state": "held"}),
            ("compensate", held, {}, {"state": "held"}),
            ("cancel", sleeping, {}, {"workflow": "wait_long"}),
            ("extend", sleeping, {"within": 9_000.0}, {"workflow": "wait_long"}),
            ("adjust", sleeping, {"deadline": 9_000.0}, {"workflow": "wait_long"}),
            ("answer", held, {"step": "audit", "result": "by hand"}, {"state": "held"}),
            ("pause", sleeping, {}, {"workflow": "wait_long"}),
            ("snooze", sleeping, {"delay": 60.0}, {"workflow": "wait_long"}),
            ("tag", sleeping, {"put": {"tenant": "acme"}}, {"workflow": "wait_long"}),
            ("pin", sleeping, {"to": "2"}, {"workflow": "wait_long"}),
        ]
        found = []
        for verb, task, more, which in named:
            found.append(Ask(f"POST /v1/tasks/{{task_id}}:{verb}", f"/v1/tasks/{task}:{verb}", {**TRY, **more}))
            found.append(Ask(f"POST /v1/tasks:{verb}", f"/v1/tasks:{verb}", {**TRY, **more, "filter": which}))
        one, many = "POST /v1/tasks/{task_id}:", "POST /v1/tasks:"
        fork = {"from_step": "audit", "reason": "again", "id": self.id(f"fork-{turn}")}
        return [
            *found,
            Ask(f"{one}fork", f"/v1/tasks/{held}:fork", {**fork, "dry_run": True}),
            Ask(f"{one}fork", f"/v1/tasks/{held}:fork", fork),
            Ask(f"{one}answer", f"/v1/tasks/{self.id(f'held-{turn}')}:answer", {**WHY, "step": "audit", "result": "x"}),
            Ask(
                f"{one}answer",
                f"/v1/tasks/{self.id('asking')}:answer",
                {**WHY, "step": "question:finance", "result": "no"},
            ),
            Ask(f"{one}resubmit", f"/v1/tasks/{held}:resubmit", {**WHY, **edit}),
            Ask(f"{one}pause", f"/v1/tasks/{sleeping}:pause", WHY),
            Ask(f"{one}resume", f"/v1/tasks/{sleeping}:resume", WHY),
            Ask(f"{many}resume", "/v1/tasks:resume", {**WHY, "filter": {"workflow": "wait_long", "paused": True}}),
            Ask(f"{many}assign-app", "/v1/tasks:assign-app", {**TRY, "app": "other"}),
        ]

    def _list_requests_of_convoys(self, turn: str) -> list[Ask]:
        key, ana = self.id(f"stuck-{turn}"), self.id("ana")
        verbs: list[tuple[str, dict[str, Any]]] = [
            ("move-to-head", {"task_id": self.id(f"last-{turn}")}),
            ("park", {}),
            ("release", {}),
            ("skip", {"seen": self.id(f"stuck-{turn}")}),
            ("set", {"head": "skip"}),
        ]
        return [
            *(Ask(f"POST /v1/convoys/{{key}}:{verb}", f"/v1/convoys/{key}:{verb}", {**WHY, **more}) for verb, more in verbs),
            Ask("GET /v1/convoys/{key}", f"/v1/convoys/{ana}"),
            Ask("GET /v1/convoys/{key}", f"/v1/convoys/{key}"),
            Ask("GET /v1/convoys", "/v1/convoys?state=idle&limit=200"),
            Ask("GET /v1/convoys", "/v1/convoys?limit=200"),
        ]  # fmt: skip

    def _list_requests_of_schedules(self, turn: str) -> list[Ask]:
        nightly, run = self.id("nightly"), self.id(f"run-{turn}")
        times = {"start": "2026-11-20T00:00:00Z", "end": "2026-11-20T03:00:00Z"}
        new = {"name": self.id(f"new-{turn}"), "workflow": "sell", "arguments": {"order": "lamp"}, "every": 3_600.0}
        one = "POST /v1/schedules/{name}:"
        return [
            Ask("POST /v1/schedules", "/v1/schedules", {**WHY, **new}),
            Ask("GET /v1/schedules", "/v1/schedules"),
            Ask("GET /v1/schedules/{name}", f"/v1/schedules/{nightly}"),
            Ask("GET /v1/schedules/{name}/decisions", f"/v1/schedules/{nightly}/decisions"),
            Ask(f"{one}pause", f"/v1/schedules/{nightly}:pause", WHY),
            Ask(f"{one}resume", f"/v1/schedules/{nightly}:resume", WHY),
            Ask(f"{one}run-now", f"/v1/schedules/{run}:run-now", WHY),
            Ask(f"{one}backfill", f"/v1/schedules/{run}:backfill", {**TRY, **times}),
            Ask(f"{one}remove", f"/v1/schedules/{self.id(f'gone-{turn}')}:remove", WHY),
        ]

    def _list_requests_of_agents(self, taken: list[dict[str, Any]]) -> list[Ask]:
        bank, spare, down = map(self.id_of_agent, ("bank", "spare", "down"))
        first, second, third = taken
        requests = "POST /v1/agents/{agent}/requests:"
        report = {**second, "status": "permanent", "message": self.reason, "details": {"pan": self.payload}}
        return [
            Ask(f"{requests}take", f"/v1/agents/{bank}/requests:take", {"limit": 1, "wait_seconds": 15}),
            Ask(f"{requests}extend", f"/v1/agents/{bank}/requests:extend", {**first, "seconds": 600}),
            Ask(f"{requests}checkpoint", f"/v1/agents/{bank}/requests:checkpoint", {**first, "checkpoint": self.payload}),
            Ask(f"{requests}publish", f"/v1/agents/{bank}/requests:publish", {**first, "value": self.payload}),
            Ask(f"{requests}report", f"/v1/agents/{bank}/requests:report", {**first, "status": "succeeded", "result": "x"}),
            Ask(f"{requests}report-batch", f"/v1/agents/{bank}/requests:report-batch", {"reports": [report]}),
            Ask(f"{requests}release", f"/v1/agents/{bank}/requests:release", third),
            Ask("GET /v1/agents", "/v1/agents"),
            Ask("GET /v1/workflows", "/v1/workflows"),
            Ask("GET /v1/code-versions", "/v1/code-versions"),
            Ask("GET /v1/processes", "/v1/processes"),
            Ask("GET /v1/acts", "/v1/acts"),
            Ask("GET /v1/workflows/{workflow}", "/v1/workflows/sell"),
            Ask("POST /v1/workflows/{workflow}:pause", "/v1/workflows/sell:pause", WHY),
            Ask("POST /v1/workflows/{workflow}:resume", "/v1/workflows/sell:resume", WHY),
            Ask("GET /v1/agents/{agent}", f"/v1/agents/{down}"),
            Ask("GET /v1/agents/{agent}/metrics", f"/v1/agents/{down}/metrics"),
            Ask("GET /v1/agents/{agent}/minutes", f"/v1/agents/{down}/minutes"),
            *(
                Ask(f"POST /v1/agents/{{agent}}:{verb}", f"/v1/agents/{agent}:{verb}", WHY)
                for agent, verb in ((down, "pause"), (down, "resume"), (spare, "open"), (spare, "close"))
            ),
        ]  # fmt: skip

    def _list_requests_of_the_store(self) -> list[Ask]:
        return [
            Ask("GET /v1/leases", "/v1/leases"),
            Ask("GET /v1/leases/{name}", "/v1/leases/nightly"),
            Ask("POST /v1/leases/{name}:break", "/v1/leases/nightly:break", WHY),
            Ask("GET /v1/leader", "/v1/leader"),
            Ask("GET /v1/alerts/causes", "/v1/alerts/causes"),
            Ask("GET /v1/alerts", "/v1/alerts?state=all&limit=200"),
            Ask("GET /v1/doctor", "/v1/doctor"),
            Ask("GET /v1/overview", "/v1/overview"),
            Ask("GET /v1/tokens", "/v1/tokens"),
            Ask("POST /v1/tokens", "/v1/tokens", {"name": "ci", "scopes": ["read"]}),
            Ask("POST /v1/tokens/{token_id}:revoke", "/v1/tokens/TOKEN:revoke", WHY),
            Ask("GET /v1/health/live", "/v1/health/live"),
            Ask("GET /v1/health/ready", "/v1/health/ready"),
            Ask("GET /metrics", "/metrics"),
            Ask("GET /v1/openapi.json", "/v1/openapi.json"),
        ]
