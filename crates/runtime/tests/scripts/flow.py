# A flow of each item. `flow.js` does the same.

import asyncio

import gristmill


def fetchText(url):
    return "the text of " + url


async def measure(given):
    await asyncio.sleep(0)
    return len(given["text"]) + int(given["more"])


def fail(text):
    raise ValueError(text)


def count(words):
    return len(words)


async def kept(flow):
    await flow.sleep("2d")
    return [flow.random(), str(flow.uuid()), int(flow.now().timestamp() * 1000), flow.id]


async def chosen(flow):
    first = await flow.first(flow.event("approve", timeout="1h"), flow.sleep("2d"))
    return [first.name, first.value, first.index]


@gristmill.flow(name="document")
async def main(flow, url):
    if url == "kept":
        return await kept(flow)
    if url == "chosen":
        return await chosen(flow)
    text = await flow.step(fetchText, url)
    more = {"text": text, "more": 1.0, "ä": 0.00001, "10": 2, "9": [1.5, 1e22]}
    sizes = await asyncio.gather(flow.step(measure, more), flow.step(measure, more, key="more"))
    mapped = await flow.map(count, ["a", "bb"], name="mapped")
    await flow.sleep("10ms")
    upper = await flow.local(str.upper, url, name="upper")
    sent = await flow.event("approve")
    try:
        await flow.step(fail, url)
    except gristmill.StepFailed as failed:
        return [sizes, mapped, upper, sent, failed.step, failed.type, flow.id]
