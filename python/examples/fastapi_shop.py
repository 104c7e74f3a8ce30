"""A web application that submits jobs and reads their results: `uvicorn fastapi_shop:api`."""

import os

import gristmill
from fastapi import FastAPI, HTTPException
from gristmill.integrations.fastapi import Application, lifespan

app = gristmill.App(os.environ.get("SHOP_STORE", "jobs.db"))


@app.job(retries=2, timeout="30s")
def shrink(width: int) -> int:
    return width // 2


api = FastAPI(lifespan=lifespan(app, workers=1))


@api.post("/pictures")
async def add_picture(width: int) -> dict[str, str]:
    """Submits a job; it is on disk when the answer is given."""
    handle = await shrink.submit_async(width)
    return {"job": handle.id}


@api.get("/pictures/{job}")
def find_picture(job: str, jobs: Application) -> dict[str, object]:
    """The state of a job, and its value once it has completed."""
    details = jobs.details(job)
    if details is None:
        raise HTTPException(404, f"there is no job {job}")
    return {"state": details.row.state, "width": details.value}


@api.get("/shrunk")
async def shrink_now(width: int) -> int:
    """Waits for the result."""
    return await (await shrink.submit_async(width))
