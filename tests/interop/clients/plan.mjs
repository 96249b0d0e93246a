// Runs a plan of calls through one published TypeScript client and prints one JSON line per call.
// `ts1.mjs` and `ts2.mjs` give it the SDK's parts; the plan is the one that plan.py describes.

import { text as readAll } from "node:stream/consumers";

const emit = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Slots {
  constructor(free) {
    this.free = free;
    this.waiting = [];
  }
  async take() {
    if (this.free > 0) this.free -= 1;
    else await new Promise((resolve) => this.waiting.push(resolve));
  }
  release() {
    const next = this.waiting.shift();
    if (next) next();
    else this.free += 1;
  }
}

function describe(error) {
  return { kind: error?.name, code: error?.code, message: String(error?.message ?? error), data: error?.data ?? null };
}

async function runCall(client, call, timeoutMs) {
  const progress = [];
  const options = { timeout: timeoutMs, onprogress: (note) => progress.push([note.progress, note.message]) };
  const began = performance.now();
  let answer;
  try {
    const result = await client.callTool(call, options);
    const text = result.content[0].text;
    answer = result.isError ? { outcome: "error", error: { message: text, data: null } } : { outcome: "result", text };
  } catch (error) {
    answer = { outcome: "error", error: describe(error) };
  }
  return { key: call.key, ...answer, progress, elapsed_s: (performance.now() - began) / 1000 };
}

async function runSession(plan, number, openSession, slots) {
  const calls = plan.sessions[number];
  const hearing = { notices: [], strays: [] };
  const lose = (call, error) =>
    emit({ session: number, key: call.key, outcome: "session lost", error: describe(error), progress: [] });
  let client;
  try {
    client = await openSession(plan.url, hearing, plan.headers);
  } catch (error) {
    for (const call of calls) lose(call, error);
    return;
  }
  await Promise.all(
    calls.map(async (call) => {
      await slots.take();
      const line = await runCall(client, call, plan.timeout_s * 1000);
      slots.release();
      emit({ session: number, ...line });
    }),
  );
  const until = performance.now() + plan.linger_s * 1000;
  const isOver = () => hearing.notices.some((text) => text.endsWith(plan.last_notice)) || performance.now() > until;
  while (!isOver()) await sleep(20);
  await client.end();
  emit({ session: number, ...hearing });
}

// One call, made again after an error or a time-out (of which the SDK tells the server), as naive agents do.
async function runAgent(plan, number, call, openSession, slots) {
  await slots.take();
  let client;
  let line = { key: call.key, outcome: "session lost", progress: [] };
  for (let tries = 1; tries <= plan.tries; tries += 1) {
    try {
      client ??= await openSession(plan.url, { notices: [], strays: [] }, plan.headers);
      line = await runCall(client, call, plan.timeout_s * 1000);
    } catch (error) {
      line.error ??= describe(error);
    }
    line.tries = tries;
    if (line.outcome === "result" || !plan.same_session) {
      await client?.end();
      client = undefined;
    }
    if (line.outcome === "result") break;
  }
  await client?.end();
  slots.release();
  emit({ session: number, ...line });
}

export async function main(openSession) {
  const plan = JSON.parse(await readAll(process.stdin));
  const slots = new Slots(plan.at_once);
  if (plan.tries) {
    const agents = plan.sessions.flatMap((calls, number) => calls.map((call) => [number, call]));
    await Promise.all(agents.map(([number, call]) => runAgent(plan, number, call, openSession, slots)));
    process.exit(0);
  }
  await Promise.all(plan.sessions.map((_, number) => runSession(plan, number, openSession, slots)));
  process.exit(0);
}
