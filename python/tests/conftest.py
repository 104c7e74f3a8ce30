import sys
import textwrap

import pytest

import gristmill


@pytest.fixture
def app(tmp_path):
    """An application on a store of its own."""
    app = gristmill.App(tmp_path / "jobs.db", durable=False)
    yield app
    app.close()


@pytest.fixture
def run_python(tmp_path):
    """Runs a Python program in a process of its own, as a file or with `-c`."""
    import subprocess

    def run(source, *arguments, as_file=True, check=True, timeout=60):
        source = textwrap.dedent(source)
        if as_file:
            path = tmp_path / "program.py"
            path.write_text(source)
            command = [sys.executable, str(path), *arguments]
        else:
            command = [sys.executable, "-c", source, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=timeout)
        if check:
            assert ended.returncode == 0, ended.stderr
        return ended

    return run
