#!/usr/bin/env python3
"""A complete service that answers through Crossway, with the `redis` package alone.

    pip install redis
    python3 echo_service.py --url redis://127.0.0.1:6390 --site echo
    crossway send echo sum '[1, 2, 3]' --from shop

A service has one stream. Commands for it arrive there, and it writes its answers there; the
daemon carries them to whoever asked. Nothing else of the store is needed.
"""
import argparse, json, os, signal, time
import redis

GROUP = "service"  # all processes of a site share the work


def run(command, params):
    if command == "echo":
        return params
    if command == "sum":
        return {"sum": sum(params)}
    raise LookupError(f"{command} isn't one of echo, sum")


def answer(fields):
    """The fields of the response to one command."""
    try:
        result = run(fields["c"], json.loads(fields.get("p") or "null"))
        outcome = {"st": "ok", "r": json.dumps(result, allow_nan=False)}
    except LookupError as error:
        outcome = {"st": "error", "_ec": "UNKNOWN_COMMAND", "e": str(error)}
    except (TypeError, ValueError) as error:
        outcome = {"st": "error", "_ec": "INVALID_PARAMS", "e": str(error)}
    except Exception as error:  # whatever else a command does wrong is an answer too
        outcome = {"st": "error", "_ec": "FAILED", "e": f"{type(error).__name__}: {error}"}
    return {"t": "r", "ri": fields.get("i", ""), "ts": str(int(time.time() * 1000)), **outcome}


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--url", default="redis://127.0.0.1:6390", help="the store")
    ask.add_argument("--site", default="echo", help="the name of this service")
    ask.add_argument("--env", default="production", help="its environment")
    opts = ask.parse_args()

    store = redis.Redis.from_url(opts.url, decode_responses=True, encoding_errors="replace")
    stream, node = f"{opts.site}:gnode:unified:{opts.env}", f"python-{os.getpid()}"
    known = store.exists(stream)
    try:
        store.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):  # it is there already: as it should be
            raise
    if not known:
        me = {"id": opts.site, "environments": [opts.env], "metadata": {}}
        store.xadd("gnode:gnode:register", {"t": "c", "c": "register_service", "p": json.dumps(me), "ss": opts.site})

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"{opts.site} answers on {stream}; Ctrl-C ends it", flush=True)
    try:
        while True:
            # What a process that died had read and not answered comes first.
            found = store.xautoclaim(stream, GROUP, node, min_idle_time=60_000, count=16)[1]
            if not found:
                read = store.xreadgroup(GROUP, node, {stream: ">"}, count=16, block=2_000)
                found = [entry for _, entries in read or [] for entry in entries]
            for entry, fields in found:
                # Ours are commands and events that aren't on their way to somebody else (`_rt`).
                if fields.get("t") == "c" and "_rt" not in fields:
                    store.xadd(stream, {**answer(fields), "ss": opts.site, "sn": node})
                store.xack(stream, GROUP, entry)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
