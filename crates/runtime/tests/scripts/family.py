"""Spawns children and finalizes. `family.js` does the same."""
import gristmill


def main(payload):
    if payload == "sibling":
        return gristmill.done({"n": 1}, siblings=["more", "most"], tags={"by": "sibling"})
    if payload == "single":
        return gristmill.done(7)
    if payload == "wrong sibling":
        return gristmill.done(1, siblings=[object()])
    if payload == "wrong":
        return gristmill.spawn(children=[object()])
    if isinstance(payload, dict):
        return gristmill.spawn(range(payload["count"]), memo=payload, kind=payload.get("kind"), on_failure="collect")
    return payload


def finalize(payload, memo, outcomes):
    if payload == "again":
        return gristmill.spawn(children=["more"])
    return [payload, memo, [outcome.get("value", outcome["state"]) for outcome in outcomes]]
