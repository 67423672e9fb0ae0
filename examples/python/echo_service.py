#!/usr/bin/env python3
"""A complete service that answers through Crossway, with the `redis` package alone.

    pip install redis
    python3 echo_service.py --url redis://127.0.0.1:6390 --site echo
    crossway send echo sum '[1, 2, 3]' --from shop

A service has one stream. Commands for it arrive there, and it writes its answers there; the
daemon carries them to whoever asked. Nothing else of the store is needed.
"""
import argparse, collections, itertools, json, signal, socket, time
import redis

GROUP = "service"  # all processes of a site share the work
REMEMBERED = 10_000  # answers that are given again instead of doing the work again

tickets = itertools.count(1)


def run(command, params):
    if command == "echo":
        return params
    if command == "sum":
        return {"sum": sum(params)}
    if command == "ticket":  # doing this twice would be a mistake
        return {"ticket": next(tickets)}
    raise LookupError(f"{command} isn't one of echo, sum, ticket")


def outcome(work):
    """The fields that say how it ended."""
    try:
        return {"st": "ok", "r": json.dumps(work(), allow_nan=False)}
    except LookupError as error:
        return {"st": "error", "_ec": "UNKNOWN_COMMAND", "e": str(error)}
    except (TypeError, ValueError) as error:
        return {"st": "error", "_ec": "INVALID_PARAMS", "e": str(error)}
    except Exception as error:  # whatever else a command does wrong is an answer too
        return {"st": "error", "_ec": "FAILED", "e": f"{type(error).__name__}: {error}"}


def batch(commands):
    """One result for each command of a batch, in its order."""
    for each in commands:
        ended = outcome(lambda: run(each["c"], each.get("p")))
        yield {"ri": each.get("i"), **ended, **({"r": json.loads(ended["r"])} if "r" in ended else {})}


def answer(fields):
    """The fields of the response to one command, or to one batch of them."""
    if fields["t"] == "bc":
        kind, ended = "br", outcome(lambda: list(batch(json.loads(fields["p"]))))
    else:
        kind, ended = "r", outcome(lambda: run(fields.get("c"), json.loads(fields.get("p") or "null")))
    return {"t": kind, "ri": fields["i"], "ts": str(int(time.time() * 1000)), **ended}


class Service:
    def __init__(self, store, site, env, node):
        self.store, self.site, self.env, self.node = store, site, env, node
        self.stream = f"{site}:gnode:unified:{env}"
        self.answers = collections.OrderedDict()  # by delivery id

    def join(self):
        known = self.store.exists(self.stream)
        try:
            self.store.xgroup_create(self.stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # it is there already: as it should be
                raise
        if not known:
            me = json.dumps({"id": self.site, "environments": [self.env], "metadata": {}})
            self.store.xadd("gnode:gnode:register", {"t": "c", "c": "register_service", "p": me, "ss": self.site})

    def serve(self):
        # What this node had read and not answered comes first: "0" gives what is pending.
        while self.work(self.read("0")):
            pass
        while True:
            # Then what a node that died had read, and what is new.
            left = self.store.xautoclaim(self.stream, GROUP, self.node, min_idle_time=60_000, count=16)[1]
            self.work(left or self.read(">"))

    def read(self, after):
        read = self.store.xreadgroup(GROUP, self.node, {self.stream: after}, count=16, block=2_000)
        return [entry for _, entries in read or [] for entry in entries]

    def work(self, entries):
        for entry, fields in entries:
            # Ours are commands that aren't on their way to somebody else (`_rt`). One that was
            # deleted meanwhile has no fields. Without an id of its own it goes by the entry's.
            if fields and fields.get("t") in ("c", "bc") and "_rt" not in fields:
                self.store.xadd(self.stream, {**self.once({"i": entry, **fields}), "ss": self.site, "sn": self.node})
            self.store.xack(self.stream, GROUP, entry)
        return entries

    def once(self, fields):
        """The answer, which is remembered: a delivery id that comes again isn't worked on again."""
        delivery = fields["i"]
        if delivery not in self.answers:
            self.answers[delivery] = answer(fields)
            if len(self.answers) > REMEMBERED:
                self.answers.popitem(last=False)
        return self.answers[delivery]


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--url", default="redis://127.0.0.1:6390", help="the store")
    ask.add_argument("--site", default="echo", help="the name of this service")
    ask.add_argument("--env", default="production", help="its environment")
    ask.add_argument("--node", default=socket.gethostname(), help="which of its processes, the same after a restart")
    opts = ask.parse_args()

    store = redis.Redis.from_url(opts.url, decode_responses=True, encoding_errors="replace", socket_timeout=10)
    service = Service(store, opts.site, opts.env, opts.node)
    service.join()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"{opts.site} answers on {service.stream}; Ctrl-C ends it", flush=True)
    while True:
        try:
            service.serve()
        except KeyboardInterrupt:
            return
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
            # The store is away, still loading, or was emptied (NOGROUP): try again, from the start.
            print(f"the store: {error}", flush=True)
            time.sleep(1)
        try:
            service.join()
        except redis.RedisError:
            pass


if __name__ == "__main__":
    main()
