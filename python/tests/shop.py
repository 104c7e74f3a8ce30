"""The jobs that the tests run: a module that workers import."""

import asyncio
import dataclasses
import decimal
import enum
import logging
import os
import time
from typing import TypedDict

import gristmill

app = gristmill.App(os.environ.get("SHOP_STORE", "shop.db"), durable=False)


class Size(enum.Enum):
    small = "small"
    large = "large"


@dataclasses.dataclass
class Picture:
    name: str
    width: int
    size: Size = Size.small


class Label(TypedDict):
    text: str
    picture: Picture


def define(app, module=None):
    """The jobs of this module, or of another one, on another application."""
    for job in list(globals().values() if module is None else vars(module).values()):
        if isinstance(job, gristmill.Job):
            options = dict(job.options)
            app.jobs[job.name] = type(job).__new__(type(job))
            app.jobs[job.name].__dict__.update(job.__dict__, app=app, options=options)
    return app


@app.job(retries=0)
def double(number):
    return 2 * number


@app.job
def add(left: int, right: int = 10) -> int:
    return left + right


@app.job(retries=0)
def gathered(which):
    return [outcome["value"] for outcome in gristmill.job().prerequisites]


@app.job(retries=0)
def place(number):
    flow = gristmill.job().flow
    return [flow.id, flow.name, flow.step, flow.key]


@app.flow(retries=0)
async def placed(flow, number):
    return await flow.step(place, number, key="k", queue=gristmill.job().queue)


@app.job
def nothing():
    return "done"


@app.job
def halve(picture: Picture) -> Picture:
    assert type(picture) is Picture and type(picture.size) is Size
    return Picture(picture.name, picture.width // 2, picture.size)


@app.job
def label(picture: Picture) -> Label:
    return {"text": picture.name, "picture": picture}


ARRIVED = []
MET = asyncio.Event()


@app.job(timeout="20s")
async def meet(number: int) -> int:
    """Ends only where two run at once in one process."""
    ARRIVED.append(number)
    if len(ARRIVED) > 1:
        MET.set()
    await MET.wait()
    return number


@app.job(retries=0)
def refuse_odd(number):
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


@app.job(retries=2, retry_delay=0)
def succeed_on_third(payload):
    attempt = gristmill.job().attempt
    if attempt < 3:
        raise gristmill.Retry("not yet", after=0)
    return attempt


@app.job(retries=5)
def fail_for_good(payload):
    raise gristmill.Fail("never")


@app.job
def say(payload):
    print("printed", payload)
    logging.getLogger("shop").warning("logged")
    gristmill.progress(1, 2, "half")
    job = gristmill.job()
    return [job.id, job.kind, job.attempt, job.tags]


def same(value):
    return value


def double_price(price: decimal.Decimal) -> decimal.Decimal:
    assert type(price) is decimal.Decimal
    return 2 * price


@app.job
def log_all(payload):
    logging.basicConfig(level=logging.INFO, force=True)
    logging.getLogger("shop").info("begins")
    logging.getLogger("shop").warning("careful")
    print("printed")


@app.job(retries=0, timeout=0.2)
def sleep_for_ever(payload):
    time.sleep(60)


@app.job(retries=0)
def die(payload):
    os._exit(9)


@app.batch(size=8, wait="20ms")
def count_batch(numbers: list[int]) -> list[int]:
    return [len(numbers)] * len(numbers)


@app.batch(size=16, wait="20ms", retries=0)
def inverse(numbers):
    return [1 / number for number in numbers]


@app.batch(size=4, wait="1ms", key=lambda text: len(text))
class Embed:
    def setup(self):
        self.process_id = os.getpid()

    def __call__(self, texts):
        assert len({len(text) for text in texts}) == 1
        return [[self.process_id, len(text)] for text in texts]


@app.batch(size=32, wait="20ms")
class Limited:
    """Has room for three at once."""

    def setup(self):
        self.sizes = []

    def __call__(self, items):
        if len(items) > 3:
            raise MemoryError(f"{len(items)} are too many")
        self.sizes.append(len(items))
        return [max(self.sizes)] * len(items)


@app.batch(size=4, wait="1ms", retries=0)
def forget_one(items):
    return items[1:]
