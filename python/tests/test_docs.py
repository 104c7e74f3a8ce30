"""The examples of docs/python.md, docs/flows.md and docs/llm.md run, in order, in one folder; and the doctests."""

import doctest
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import gristmill
import gristmill.testing

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
EXAMPLE = re.compile(r"```python\n# ([\w.]+)(?:, needs (\w+))?\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize(("page", "least"), [("python.md", 10), ("flows.md", 7), ("llm.md", 4)])
def test_the_page_is_true(page, least, tmp_path):
    text = (DOCS / page).read_text()
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python")
    assert len(examples) >= least
    for name, needed, source, expected in examples:
        if needed and importlib.util.find_spec(needed) is None:
            continue
        (tmp_path / name).write_text(source)
        if name.startswith("test_"):
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        else:
            command = [sys.executable, name]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, f"{name}: {ended.stderr or ended.stdout}"
        if expected:
            assert ended.stdout == expected, name


def test_the_readme_is_true(tmp_path):
    examples = EXAMPLE.findall((DOCS.parent / "README.md").read_text())
    [(name, source)] = [(name, source) for name, _, source, _ in examples if "import gristmill" in source]
    (tmp_path / name).write_text(source)
    ended = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("['HELLO']\n", 0), ended.stderr


def double(number):
    return 2 * number


def _examples():
    """The docstrings of the package that have examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    optional = ("integrations", "ray")
    for found in pkgutil.walk_packages(gristmill.__path__, "gristmill."):
        if found.name.split(".")[1] in optional or found.name.endswith(("_native", "__main__", "leash")):
            continue
        yield from finder.find(importlib.import_module(found.name), found.name)
    yield from finder.find(gristmill, "gristmill")


@pytest.mark.parametrize("example", {test.name: test for test in _examples() if test.examples}.values(), ids=lambda test: test.name)
def test_the_docstrings_are_true(example, app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = app.job(double)
    example.globs.update(app=app, double=job, gristmill=gristmill)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert result.attempted > 0 and result.failed == 0


# What the package itself calls, and people do not.
INTERNAL = {
    "testing.Clock": ["now_ms", "open"],
    "App": ["engine", "is_file", "is_open", "is_server", "run_eagerly"],
    "Events": ["close"],
    "Flow": ["wait_for"],
    "Handle": ["concluded"],
    "Job": ["batch_options", "common", "entry", "finalizing", "is_asynchronous", "named_arguments", "result_of"],
    "LocalWorker": ["end", "give_up", "start"],
    "Submitted": ["places", "prerequisites"],
}


def test_what_people_call_has_an_example():
    named = [(name, getattr(gristmill, name)) for name in gristmill.__all__]
    named += [(f"testing.{name}", getattr(gristmill.testing, name)) for name in gristmill.testing.__all__]
    without = [name for name, value in named if ">>>" not in (value.__doc__ or "")]
    for name, kind in named:
        for of in kind.__mro__ if inspect.isclass(kind) else ():
            for member, value in vars(of).items() if of.__module__.startswith("gristmill") else ():
                function = value.fget if isinstance(value, property) else value
                if member.startswith("_") or not inspect.isfunction(function) or member in INTERNAL.get(name, ()):
                    continue
                # The answers' constructors are static.
                if ">>>" not in (function.__doc__ or ""):
                    without.append(f"{name}.{member}")
    assert without == []


def test_the_package_is_light_to_import():
    """A script in a worker's process loads neither the extension nor asyncio by `import gristmill`."""
    source = "import sys; before = set(sys.modules); import gristmill; print(*sorted(set(sys.modules) - before))"
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=os.sep)
    loaded = ended.stdout.split()
    assert "gristmill" in loaded
    assert not {"gristmill._native", "asyncio", "dataclasses", "inspect"} & set(loaded)
