"""Says what the library `redis` for Python got of the store at a URL, in one version of the protocol."""
import json, re, socket, sys, threading
import redis

url, protocol = sys.argv[1], int(sys.argv[2])
store = redis.Redis.from_url(url, protocol=protocol, decode_responses=True, socket_timeout=20)


def say(what, value):
    text = json.dumps(value, default=str, sort_keys=True)
    text = re.sub(r"\b1[0-9]{12}\b", "MOMENT", text)
    text = re.sub(r'"(idle|inactive|time_since_delivered)": -?\d+', r'"\1": "MS"', text)
    print(what, text, flush=True)


# Many commands in one go, some of them wrong.
pipe = store.pipeline(transaction=False)
for number in range(500):
    pipe.xadd("a", {"n": number}, id=f"{number + 1}-0")
pipe.set("a-string", "x", ex=100).get("a-string").xlen("a-string").ttl("a-string")
say("pipeline", [str(each) for each in pipe.execute(raise_on_error=False)])

# A group over several streams, of which one is written to while the reader waits.
for stream in ("a", "b", "c"):
    store.xgroup_create(stream, "g", id="0", mkstream=True)
say("several", store.xreadgroup("g", "me", {"a": ">", "b": ">", "c": ">"}, count=2))
say("nothing", store.xreadgroup("g", "me", {"b": ">", "c": ">"}, count=2, block=10))
other = redis.Redis.from_url(url, protocol=protocol, socket_timeout=20)


def write_when_it_waits():
    while other.info("clients")["blocked_clients"] == 0:
        pass
    other.xadd("c", {"v": "woken"}, id="7-7")


writer = threading.Thread(target=write_when_it_waits)
writer.start()
say("woken", store.xreadgroup("g", "me", {"b": ">", "c": ">"}, count=2, block=20_000))
writer.join()

say("pending", store.xpending("a", "g"))
say("pending range", store.xpending_range("a", "g", "-", "+", 10))
say("claimed", store.xautoclaim("a", "g", "other", min_idle_time=0, count=1))
say("acknowledged", store.xack("a", "g", "1-0", "2-0", "3-0"))
say("trimmed", store.xtrim("a", maxlen=3, approximate=False))
say("range", store.xrange("a"))
say("reversed", store.xrevrange("a", count=1))
say("groups", store.xinfo_groups("a"))
info = store.xinfo_stream("c")
say("stream", {name: info[name] for name in ("length", "groups", "first-entry", "last-entry", "last-generated-id")})
full = store.xinfo_stream("c", full=True)
say("full", {name: full[name] for name in ("length", "entries", "last-generated-id")})
say("full groups", [{name: str(value) for name, value in group.items()} for group in full["groups"]])

say("hash", [store.hset("h", mapping={"x": 1, "y": 2}), store.hgetall("h"), store.hget("h", "z"), store.hdel("h", "x")])
say("keys", [store.exists("h", "none"), store.type("a"), sorted(store.scan_iter(match="*", count=2))])
for wrong in (lambda: store.xgroup_create("a", "g"), lambda: store.xreadgroup("none", "me", {"a": ">"}), lambda: store.get("a")):
    try:
        say("wrong", wrong())
    except redis.ResponseError as error:
        say("wrong", f"{type(error).__name__}: {error}")

# The connection breaks; the library connects again by itself.
connection = store.connection_pool.get_connection()
connection._sock.shutdown(socket.SHUT_RDWR)
store.connection_pool.release(connection)
say("again", [store.ping(), store.get("a-string"), store.xlen("c")])
