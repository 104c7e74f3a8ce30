"""Random programs of flows, the flow that interprets them, and instances in memory."""

import asyncio
import json

import gristmill
from gristmill.testing.flows import Instance

app = gristmill.App("programs.db", durable=False)


@app.job(retries=0)
def double(number: int) -> int:
    return 2 * number


@app.job(retries=0)
def fail(message: str) -> None:
    raise ValueError(message)


def random_program(rng, depth=0):
    """A program of a flow, as a nested list: what it does does not depend on the order in which equal things end."""
    what = rng.choice(["step", "step", "fail", "map", "sleep", "event", "local"] + ["sequence", "gather", "race", "attempt"] * (depth < 3))
    if what in ("sequence", "gather"):
        return [what, *(random_program(rng, depth + 1) for _ in range(rng.randint(1, 4)))]
    if what == "attempt":
        return [what, random_program(rng, depth + 1)]
    if what == "race":
        return [what, rng.sample(range(1, 50), 2), random_program(rng, depth + 1)]
    if what == "map":
        return [what, [rng.randint(0, 9) for _ in range(rng.randint(0, 5))]]
    return [what, rng.randint(1, 50)]


async def interpreted(flow, program):
    """What a program gives."""
    what, *parts = program
    if what == "step":
        return await flow.step(double, parts[0])
    if what == "fail":
        return await flow.step(fail, str(parts[0]))
    if what == "map":
        return await flow.map(double, parts[0])
    if what == "sleep":
        return await flow.sleep(parts[0])
    if what == "event":
        try:
            return await flow.event(f"event {parts[0]}", timeout=parts[0])
        except TimeoutError:
            return "late"
    if what == "local":
        return await flow.local(str, parts[0]) + str(flow.random() < 2)
    if what == "sequence":
        return [await interpreted(flow, part) for part in parts]
    if what == "gather":
        return await asyncio.gather(*(interpreted(flow, part) for part in parts))
    if what == "race":
        first = await flow.first(*(flow.sleep(span) for span in parts[0]))
        return [first.index, await interpreted(flow, parts[1])]
    try:
        return await interpreted(flow, parts[0])
    except gristmill.StepFailed as failed:
        return f"failed: {failed.type}"


@app.flow(name="interpreter", retries=0)
async def interpreter(flow, program):
    try:
        return await interpreted(flow, program)
    except gristmill.StepFailed:
        return "failed"


def instance(flow, payload=None, **options):
    """An instance that runs the application's jobs."""
    from gristmill.testing.eager import EagerEngine

    engine = EagerEngine(flow.app)

    def execute(batch, text):
        job = flow.app.jobs[batch["kind"]]
        number, _ = engine._run_all(job.common(), [json.loads(text)], lambda value: value)
        return engine._ended(number, 0)

    return Instance(flow, json.dumps(payload), execute, **options)


def defined(app, function, **options):
    """A flow that is no job of the application: others of its name may follow."""
    from gristmill._flow.job import FlowJob
    from gristmill._options import options_json

    return FlowJob(app, function, "changing", None, "default", options_json(**options), None)
