"""Flows of scripts, which the program runs over a file of items."""

import json
import os
import subprocess
import sys

import pytest

from gristmill._process import program_path

SCRIPT = """
import asyncio
import gristmill


def fetch(url):
    return "the text of " + url


async def measure(text, more=0):
    await asyncio.sleep(0)
    return len(text) + more


def fail(text):
    raise ValueError(text)


@gristmill.flow
async def document(flow, url):
    text = await flow.step(fetch, url)
    sizes = await asyncio.gather(flow.step(measure, text), flow.step(measure, text, more=1, key="more"))
    mapped = await flow.map(measure, [(text, 2), (text, 3)], starmap=True, name="mapped")
    await flow.sleep("10ms")
    kept = await flow.local(str.upper, url)
    try:
        await flow.step(fail, url)
    except gristmill.StepFailed as failed:
        return [sizes, mapped, kept, failed.type, failed.message, flow.id is not None]
"""


@pytest.fixture(params=["package", "script alone"])
def run_script(request, tmp_path):
    environment = {**os.environ, "GRISTMILL_PYTHON": sys.executable}
    if request.param == "script alone":
        # An interpreter that has no packages.
        alone = tmp_path / "python-alone"
        alone.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
        alone.chmod(0o755)
        environment["GRISTMILL_PYTHON"] = str(alone)

    def run(source, items, *arguments):
        (tmp_path / "flow.py").write_text(source)
        (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        files = ["--input", "items.jsonl", "--output", "results.jsonl"]
        command = [program_path(), "run", "flow.py", *files, "--values", "--retries", "0", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        results = (tmp_path / "results.jsonl").read_text() if (tmp_path / "results.jsonl").exists() else ""
        return ended, [json.loads(line) for line in results.splitlines()]

    return run


def test_a_script_runs_a_flow_of_each_item(run_script):
    ended, results = run_script(SCRIPT, ["a", "bb"])
    assert ended.returncode == 0, ended.stderr
    assert results == [
        [[13, 14], [15, 16], "A", "ValueError", "a", True],
        [[14, 15], [16, 17], "BB", "ValueError", "bb", True],
    ]


def test_several_flows_need_a_main(run_script):
    source = "import gristmill\n\n@gristmill.flow\ndef one(flow):\n    return 1\n\n@gristmill.flow\ndef two(flow):\n    return 2\n"
    ended, _ = run_script(source, [1])
    assert ended.returncode != 0 and "name the one that runs its items `main`" in ended.stderr
    ended, results = run_script(source + "\nmain = two\n", [1])
    assert ended.returncode == 0 and results == [2]


def test_a_step_is_a_function_of_the_script(run_script):
    source = "import gristmill\n\n@gristmill.flow\ndef main(flow, item):\n    return flow.step(len, item).result()\n"
    ended, _ = run_script(source, ["a"])
    assert ended.returncode != 0 and "no function at the top of the script" in ended.stderr
