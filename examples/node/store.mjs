// The little of the Redis protocol that a service needs, so that these examples need no package.
// With `ioredis` or `redis` at hand, use that instead: the commands are the same.
import net from "node:net";
import tls from "node:tls";

export class Store {
  #socket;
  #waiting = []; // one {resolve, reject} for each command on its way, in order
  #input = Buffer.alloc(0);

  /** Connects to `redis://[user:password@]host:port`, or `rediss://` for TLS. */
  static async connect(url) {
    const { protocol, hostname, port, username, password } = new URL(url);
    const store = new Store();
    const options = { host: hostname, port: Number(port || 6379), servername: hostname };
    const secure = protocol === "rediss:";
    store.#socket = secure ? tls.connect(options) : net.connect(options);
    store.#socket.setNoDelay(true);
    // No read of ours waits for longer than a second.
    store.#socket.setTimeout(10_000, () => store.#socket.destroy(new Error("the store says nothing")));
    await new Promise((resolve, reject) => {
      store.#socket.once(secure ? "secureConnect" : "connect", resolve).once("error", reject);
    });
    store.#socket.on("error", () => {}); // "close" follows
    store.#socket.on("close", () => store.#fail(new ConnectionLost("the connection was lost")));
    store.#socket.on("data", (bytes) => store.#take(bytes));
    if (password) {
      const login = [username, password].filter(Boolean).map(decodeURIComponent);
      await store.call("AUTH", ...login);
    }
    return store;
  }

  /** Sends one command and gives its answer. */
  call(...words) {
    if (this.#socket.destroyed) return Promise.reject(new ConnectionLost("there is no connection"));
    const parts = words.flatMap((word) => [`$${Buffer.byteLength(String(word))}`, word]);
    this.#socket.write([`*${words.length}`, ...parts, ""].join("\r\n"));
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  close() {
    this.#socket.destroy();
  }

  #take(bytes) {
    this.#input = Buffer.concat([this.#input, bytes]);
    try {
      for (let got; (got = parse(this.#input, 0)); ) {
        this.#input = this.#input.subarray(got.end);
        const { resolve, reject } = this.#waiting.shift();
        got.value instanceof Error ? reject(got.value) : resolve(got.value);
      }
    } catch (error) {
      this.#fail(error);
      this.close();
    }
  }

  #fail(error) {
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }
}

/** Whether a command was carried out isn't known: its answer never came. */
export class ConnectionLost extends Error {}

/** The value that begins at `at` and where it ends, or nothing while it isn't all there. */
function parse(input, at) {
  const eol = input.indexOf("\r\n", at);
  if (eol < 0) return undefined;
  const text = input.toString("utf8", at + 1, eol);
  let end = eol + 2;
  switch (String.fromCharCode(input[at])) {
    case "+":
      return { value: text, end };
    case "-":
      return { value: new Error(text), end };
    case ":":
      return { value: Number(text), end };
    case "$": {
      if (text === "-1") return { value: null, end };
      const stop = end + Number(text);
      if (input.length < stop + 2) return undefined;
      return { value: input.toString("utf8", end, stop), end: stop + 2 };
    }
    case "*": {
      if (text === "-1") return { value: null, end };
      const value = [];
      for (let left = Number(text); left > 0; left--) {
        const item = parse(input, end);
        if (!item) return undefined;
        value.push(item.value);
        end = item.end;
      }
      return { value, end };
    }
    default:
      throw new ConnectionLost("the store doesn't speak the Redis protocol");
  }
}

/** The entries of an XREAD or XREADGROUP of one stream, as `[id, {field: value}]`. */
export function entries(read) {
  return (read?.[0]?.[1] ?? []).map(([id, flat]) => [id, fields(flat)]);
}

/** A flat list of names and values as an object; of a deleted entry, nothing. */
export function fields(flat) {
  const object = {};
  for (let at = 0; at + 1 < (flat?.length ?? 0); at += 2) object[flat[at]] ??= flat[at + 1];
  return object;
}

/** The words of an entry to be appended. */
export function flat(object) {
  return Object.entries(object).flat();
}

/** Where nobody knows the site yet, it registers. */
export async function register(store, stream, site) {
  if (await store.call("EXISTS", stream)) return;
  const me = { id: site, environments: ["production"], metadata: {} };
  const entry = { t: "c", c: "register_service", p: JSON.stringify(me), ss: site };
  await store.call("XADD", "gnode:gnode:register", "*", ...flat(entry));
}
