// The Agent of payments: takes requests, charges and refunds in a book that survives it, and reports. Node 20 or later, no dependency.
//
//   ARRIERO_URL=http://127.0.0.1:8000 ARRIERO_TOKEN=... PAYMENTS_BOOK=payments.jsonl node payments.mjs

import { appendFileSync, existsSync, readFileSync } from "node:fs";

interface Arguments { order: string; cents: number }
interface AgentRequest {
  task: string; step: string; kind: "step" | "compensation"; arguments: Arguments;
  idempotency_key: string; capability: string; forward_key?: string;
}
interface Entry { kind: "charge" | "refund" | "bar"; key: string; order: string; cents: number }
interface Problem { status: number; code: string; detail: string }
type Outcome = { status: "succeeded"; result?: unknown } | { status: "permanent"; message: string; code: string };

const url = process.env.ARRIERO_URL, token = process.env.ARRIERO_TOKEN, path = process.env.PAYMENTS_BOOK ?? "payments.jsonl";
const book = new Map<string, Entry>();
if (existsSync(path)) {
  for (const line of readFileSync(path, "utf8").split("\n").filter((text) => text.endsWith("}"))) {
    const entry = JSON.parse(line) as Entry;
    book.set(`${entry.kind} ${entry.key}`, entry);
  }
}

function enter(entry: Entry): void {  // once for a key, however often it is asked for
  if (book.has(`${entry.kind} ${entry.key}`)) return;
  appendFileSync(path, "\n" + JSON.stringify(entry));
  book.set(`${entry.kind} ${entry.key}`, entry);
}

function carryOut(request: AgentRequest): Outcome {
  const { order, cents } = request.arguments, key = request.idempotency_key;
  if (request.kind === "step") {
    if (book.has(`bar ${key}`)) return { status: "permanent", message: "this charge was taken back", code: "barred" };
    enter({ kind: "charge", key, order, cents });
    return { status: "succeeded", result: `receipt-${order}` };
  }
  const forward = request.forward_key ?? "";  // the charge under this key must not happen later
  enter({ kind: "bar", key: forward, order, cents: 0 });
  if (book.has(`charge ${forward}`)) enter({ kind: "refund", key: forward, order, cents });
  return { status: "succeeded" };
}

async function post(verb: string, body: unknown): Promise<Response> {
  const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
  return fetch(`${url}/v1/agents/payments/requests:${verb}`, { method: "POST", headers, body: JSON.stringify(body) });
}

async function report(requests: AgentRequest[]): Promise<void> {
  const reports = requests.map((request) => ({ task: request.task, capability: request.capability, ...carryOut(request) }));
  const answer = await post("report-batch", { reports });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);  // the requests come again, under their keys
  const { results } = (await answer.json()) as { results: { problem: Problem | null }[] };
  for (const { problem } of results) {
    if (problem && problem.status !== 409) console.error(`${problem.code}: ${problem.detail}`);  // 409: it is over
  }
}

for (;;) {
  try {
    const answer = await post("take", { limit: 20, wait_seconds: 10 });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    const { requests } = (await answer.json()) as { requests: AgentRequest[] };
    if (requests.length) await report(requests);
  } catch (error) {  // the gateway is away: ask again soon
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
