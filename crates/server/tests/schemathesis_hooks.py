"""Bodies that Schemathesis does not know: sent as they were drawn, and the exchange's also in its own frame."""

import json
import struct

import schemathesis


def as_bytes(value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value).encode()


FIRST = {"jobs": ["$response.body#/first"]}
WORKER = "$response.body#/worker"
CLAIMED = {name: f"$response.body#/jobs/0/{name}" for name in ("job", "lease", "attempt")}

# Links that give a body: the operation and the status that answers, the operation that takes it, and its body. Generators of
# clients do not read them, so the server's description has none.
LINKS_WITH_BODIES = [
    ("submit", "201", "cancel", FIRST),
    ("submit", "201", "retry", FIRST),
    ("submit", "201", "discard", FIRST),
    ("submit", "201", "prioritise", {**FIRST, "priority": 7}),
    ("submit", "201", "pause_jobs", {**FIRST, "reason": "test"}),
    ("submit", "201", "resume_jobs", FIRST),
    ("register", "201", "claim", {"worker": WORKER, "jobs_max": 5}),
    ("claim", "200", "report", {"worker": WORKER, "outcomes": [{**CLAIMED, "value": 7}]}),
    ("claim", "200", "claim", {"worker": WORKER}),
]


@schemathesis.hook
def before_load_schema(context, raw_schema):
    operations = [operation for item in raw_schema["paths"].values() for operation in item.values()]
    by_id = {operation["operationId"]: operation for operation in operations}
    for source, status, target, body in LINKS_WITH_BODIES:
        links = by_id[source]["responses"][status].setdefault("links", {})
        links[target] = {"operationId": target, "requestBody": body}


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return as_bytes(value)


@schemathesis.serializer("application/vnd.gristmill.exchange.v1")
def exchange(ctx, value):
    drawn = as_bytes(value)
    # Every second body gets past the frame: a head that is right, and what was drawn as its only segment.
    if len(drawn) % 2:
        return drawn
    report = {"lease": 1, "batch": 1, "attempt": 1, "completed": "0"}
    head = json.dumps(
        {"number": 1 + len(drawn), "attempt": 1, "acknowledged": 0, "instance": "x", "reports": [report]}
    ).encode()
    durations = struct.pack("<II", 4, 7)
    return b"GMX1" + struct.pack("<I", len(head)) + head + struct.pack("<I", len(drawn)) + drawn + durations
