"""The jobs of the tests on a Ray cluster: a module that workers import."""

import os
import pathlib
import time

import gristmill

app = gristmill.App("cluster.db")


@app.job
def hold(folder: str) -> int:
    """Runs until the folder has the file `go`."""
    pathlib.Path(folder, f"begun-{os.getpid()}").touch()
    while not pathlib.Path(folder, "go").exists():
        time.sleep(0.02)
    return os.getpid()


@app.job(retries=0)
def refuse_odd(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


@app.job
def add(left: int, right: int = 10) -> int:
    return left + right


@app.job
def gpus(payload: None) -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")
