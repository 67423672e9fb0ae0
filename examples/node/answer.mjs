// A complete service for Node without packages: answer.mjs URL SITE [NODE]
//
//     node answer.mjs redis://127.0.0.1:6390 echo
//     crossway send echo sum '[1, 2, 3]' --from shop
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Store, entries, fields, flat, register } from "./store.mjs";

const [url, site, node = os.hostname()] = process.argv.slice(2);
if (!site) {
  console.error("usage: answer.mjs URL SITE [NODE]");
  process.exit(2);
}
const GROUP = "service"; // all processes of a site share the work
const stream = `${site}:gnode:unified:production`;

let tickets = 0;
const commands = {
  echo: (params) => params,
  sum(params) {
    if (!Array.isArray(params) || !params.every(Number.isFinite)) throw new TypeError("sum adds a list of numbers");
    return { sum: params.reduce((all, each) => all + each, 0) };
  },
  ticket: () => ({ ticket: ++tickets }), // doing this twice would be a mistake
};

/** How one command ended; its result isn't text yet. */
function outcome(name, params) {
  if (!Object.hasOwn(commands, name)) {
    return { st: "error", _ec: "UNKNOWN_COMMAND", e: `${name} isn't one of ${Object.keys(commands).join(", ")}` };
  }
  try {
    return { st: "ok", r: commands[name](params()) ?? null };
  } catch (error) {
    const wrong = error instanceof TypeError || error instanceof SyntaxError;
    return { st: "error", _ec: wrong ? "INVALID_PARAMS" : "FAILED", e: String(error.message) };
  }
}

/** The fields of the response to one command, or to one batch of them. */
function answer({ t, i, c, p = "null" }) {
  const each = ({ i, c, p }) => ({ ri: i, ...outcome(c, () => p) });
  const ended = t === "bc" ? batch(p, each) : outcome(c, () => JSON.parse(p));
  if ("r" in ended) ended.r = JSON.stringify(ended.r);
  return { t: t === "bc" ? "br" : "r", ri: i, ts: Date.now(), ...ended };
}

function batch(text, each) {
  try {
    return { st: "ok", r: JSON.parse(text).map(each) };
  } catch (error) {
    return { st: "error", _ec: "INVALID_PARAMS", e: error.message };
  }
}

const answers = new Map(); // by delivery id: one that comes again isn't worked on again
function once(command) {
  if (!answers.has(command.i)) {
    answers.set(command.i, answer(command));
    if (answers.size > 10_000) answers.delete(answers.keys().next().value);
  }
  return answers.get(command.i);
}

async function join(store) {
  await register(store, stream, site);
  try {
    await store.call("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM");
  } catch (error) {
    if (!error.message.startsWith("BUSYGROUP")) throw error; // it is there already: as it should be
  }
}

async function read(store, after) {
  const wait = ["COUNT", 16, "BLOCK", 1000, "STREAMS", stream, after];
  return entries(await store.call("XREADGROUP", "GROUP", GROUP, node, ...wait));
}

async function work(store, list) {
  for (const [id, command] of list) {
    // Ours are commands that aren't on their way to somebody else (`_rt`).
    if (["c", "bc"].includes(command.t) && command._rt === undefined) {
      await store.call("XADD", stream, "*", ...flat({ ...once({ i: id, ...command }), ss: site, sn: node }));
    }
    await store.call("XACK", stream, GROUP, id);
  }
  return list.length;
}

let ending = false;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (ending = true));

async function serve(store) {
  // What this node had read and not answered comes first: "0" gives what is pending.
  while (!ending && (await work(store, await read(store, "0"))));
  while (!ending) {
    // Then what a node that died had read, and what is new.
    const [, left] = await store.call("XAUTOCLAIM", stream, GROUP, node, 60_000, "0", "COUNT", 16);
    const claimed = left.map(([id, flat]) => [id, fields(flat)]);
    await work(store, claimed.length ? claimed : await read(store, ">"));
  }
}

let announced = false;
while (!ending) {
  let store;
  try {
    store = await Store.connect(url);
    await join(store);
    if (!announced) console.log(`${site} answers on ${stream}; Ctrl-C ends it`);
    announced = true;
    await serve(store);
  } catch (error) {
    // The store is away, still loading, or was emptied (NOGROUP): try again, from the start.
    console.error(`the store: ${error.message}`);
    await sleep(1000);
  } finally {
    store?.close();
  }
}
