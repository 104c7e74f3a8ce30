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
    """Runs a Python program in a process of its own, as a file, as a module or with `-c`."""
    import subprocess

    def run(source, *arguments, as_file=True, check=True, timeout=60, module="", given=""):
        source = textwrap.dedent(source)
        if module:
            path = tmp_path / module.replace(".", "/")
            path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
            path.write_text(source)
            command = [sys.executable, "-m", module, *arguments]
        elif as_file:
            path = tmp_path / "program.py"
            path.write_text(source)
            command = [sys.executable, str(path), *arguments]
        else:
            command = [sys.executable, "-c", source, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=timeout, input=given)
        if check:
            assert ended.returncode == 0, ended.stderr
        return ended

    return run
