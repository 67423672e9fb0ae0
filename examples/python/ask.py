#!/usr/bin/env python3
"""Asks a service and waits for its answer: ask.py URL SITE TARGET COMMAND [PARAMS]

    python3 ask.py redis://127.0.0.1:6390 shop echo sum '[1, 2, 3]'
"""
import json, sys, time, uuid
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

SECONDS = 10  # how long the answer may take


def main(url, site, target, command, params="{}"):
    # The library would send a command again whose answer was lost: never do that with a write.
    store = redis.Redis.from_url(url, decode_responses=True, socket_timeout=10, retry=Retry(NoBackoff(), 0))
    stream, mine = f"{site}:gnode:unified:production", uuid.uuid4().hex
    deadline = time.monotonic() + SECONDS

    if not store.exists(stream):  # nobody knows this site yet
        me = json.dumps({"id": site, "environments": ["production"], "metadata": {}})
        store.xadd("gnode:gnode:register", {"t": "c", "c": "register_service", "p": me, "ss": site})
    last = store.xadd(stream, {"t": "c", "i": mine, "c": command, "p": params, "_rt": target})

    relayed = False
    while (left := deadline - time.monotonic()) > 0:
        try:
            read = store.xread({stream: last}, block=max(1, int(min(left, 1) * 1000)))
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(0.1)  # reading again does no harm
            continue
        for last, fields in (entry for _, entries in read or [] for entry in entries):
            if fields.get("t") != "r" or fields.get("ri") != mine:
                continue
            by_daemon, failed = fields.get("ss") == "gnode", fields.get("st") == "error"
            if failed and by_daemon:  # not let through: asking again changes nothing
                return f"refused, {fields['_ec']}: {fields['e']}"
            if failed:
                return f"{target} couldn't: {fields.get('e')}"
            if not by_daemon:
                print(f"{fields['ss']} answered: {fields['r']}")
                return None
            relayed = True  # the target has it; its answer comes next
    return "perhaps done; look before asking again" if relayed else "nobody took it yet"


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except redis.RedisError as error:
        sys.exit(f"the store: {error}")
