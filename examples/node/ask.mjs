// Asks a service and waits for its answer: ask.mjs URL SITE TARGET COMMAND [PARAMS]
//
//     node ask.mjs redis://127.0.0.1:6390 shop echo sum '[1, 2, 3]'
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Store, entries, flat, register } from "./store.mjs";

const SECONDS = 10; // how long the answer may take

async function ask(url, site, target, command, params = "{}") {
  const stream = `${site}:gnode:unified:production`;
  const mine = randomUUID();
  const deadline = Date.now() + SECONDS * 1000;

  let store = await Store.connect(url);
  await register(store, stream, site);
  const sent = { t: "c", i: mine, c: command, p: params, _rt: target };
  // Where this fails it isn't known whether it was written, so it is never sent again.
  let last = await store.call("XADD", stream, "*", ...flat(sent));

  let relayed = false;
  for (let left; (left = deadline - Date.now()) > 0; ) {
    let read;
    try {
      read = entries(await store.call("XREAD", "BLOCK", Math.min(left, 1000), "STREAMS", stream, last));
    } catch {
      await sleep(100); // reading again does no harm
      store = await Store.connect(url).catch(() => store);
      continue;
    }
    for (const [id, { t, ri, ss, st, r, e, _ec }] of read) {
      last = id;
      if (t !== "r" || ri !== mine) continue;
      const byDaemon = ss === "gnode";
      // Not let through: asking again changes nothing.
      if (st === "error" && byDaemon) return [1, `refused, ${_ec}: ${e}`];
      if (st === "error") return [1, `${target} couldn't: ${e}`];
      if (!byDaemon) return [0, `${ss} answered: ${r}`];
      relayed = true; // the target has it; its answer comes next
    }
  }
  return [1, relayed ? "perhaps done; look before asking again" : "nobody took it yet"];
}

const words = process.argv.slice(2);
if (words.length < 4 || words.length > 5) {
  console.error("usage: ask.mjs URL SITE TARGET COMMAND [PARAMS]");
  process.exit(2);
}
const [status, said] = await ask(...words).catch((error) => [1, `the store: ${error.message}`]);
status ? console.error(said) : console.log(said);
process.exit(status);
