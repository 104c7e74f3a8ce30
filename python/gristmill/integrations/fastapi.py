"""An application in FastAPI: it opens and closes with the web application, and requests get it as a dependency.

    from fastapi import FastAPI
    from gristmill.integrations.fastapi import Application, lifespan
    from shop import app, shrink

    api = FastAPI(lifespan=lifespan(app))

    @api.post("/pictures")
    async def add(picture: str, jobs: Application) -> str:
        return (await shrink.submit_async(picture)).id
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from starlette.requests import HTTPConnection

from .._app import App


def lifespan(app: App, workers: int = 0) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """The lifespan of a web application: opens the store before the first request and closes it after the last one. With
    `workers`, a worker with so many processes for each job runs beside it."""

    @asynccontextmanager
    async def live(api: FastAPI) -> AsyncGenerator[None, None]:
        await asyncio.to_thread(app.engine)
        api.state.gristmill = app
        worker: Any = await asyncio.to_thread(app.worker, workers) if workers else None
        try:
            yield
        finally:
            if worker is not None:
                await asyncio.to_thread(worker.stop)
            await asyncio.to_thread(app.close)

    return live


def application(connection: HTTPConnection) -> App:
    """The dependency: the application of `lifespan`."""
    app: App | None = getattr(connection.app.state, "gristmill", None)
    if app is None:
        raise RuntimeError("the web application has no lifespan of Gristmill's: FastAPI(lifespan=lifespan(app))")
    return app


# A parameter of this type is the application.
Application = Annotated[App, Depends(application)]
