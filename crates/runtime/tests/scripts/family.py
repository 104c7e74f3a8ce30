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
    if payload == "misspelt":
        return gristmill.spawn(["more"], options={"priorty": 5})
    if payload == "misspelt retry":
        return gristmill.spawn(["more"], options={"retry": {"attempts": 5}})
    if payload == "misspelt batch":
        return gristmill.spawn(batches=[{"payload": ["more"]}])
    if payload == "misspelt children":
        return gristmill.spawn(childen=["more"])
    if payload == "misspelt policy":
        return gristmill.spawn(["more"], on_failure="colect")
    if payload == "misspelt sibling":
        return gristmill.done(1, siblings=["more"], options={"timeout": 5})
    if payload == "options":
        return gristmill.spawn(["more"], options={"priority": 5, "retry": {"attempts_max": 7}})
    if isinstance(payload, dict):
        return gristmill.spawn(range(payload["count"]), memo=payload, kind=payload.get("kind"), on_failure="collect")
    return payload


def finalize(payload, memo, outcomes):
    if payload == "again":
        return gristmill.spawn(children=["more"])
    return [payload, memo, [outcome.get("value", outcome["state"]) for outcome in outcomes]]
