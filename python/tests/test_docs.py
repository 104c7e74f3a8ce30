"""The examples of docs/python.md run, in order, in one folder; and the doctests."""

import doctest
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLE = re.compile(r"```python\n# ([\w.]+)(?:, needs (\w+))?\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def test_the_page_is_true(tmp_path):
    examples = EXAMPLE.findall(PAGE.read_text())
    assert len(examples) == PAGE.read_text().count("```python")
    assert len(examples) >= 10
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
    examples = EXAMPLE.findall((PAGE.parents[1] / "README.md").read_text())
    [(name, source)] = [(name, source) for name, _, source, _ in examples if "import gristmill" in source]
    (tmp_path / name).write_text(source)
    ended = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("['HELLO']\n", 0), ended.stderr


@pytest.mark.parametrize("module", ["_app", "_spans", "executor", "testing"])
def test_the_docstrings_are_true(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = importlib.import_module(f"gristmill.{module}")
    failed, tried = doctest.testmod(found)
    assert tried > 0 and failed == 0


def test_the_package_is_light_to_import():
    """A script in a worker's process loads neither the extension nor asyncio by `import gristmill`."""
    source = "import sys; before = set(sys.modules); import gristmill; print(*sorted(set(sys.modules) - before))"
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=os.sep)
    loaded = ended.stdout.split()
    assert "gristmill" in loaded
    assert not {"gristmill._native", "asyncio", "dataclasses", "inspect"} & set(loaded)
