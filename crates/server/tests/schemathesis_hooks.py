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
