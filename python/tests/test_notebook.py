"""The example notebook runs in a kernel of its own."""

import pathlib

import pytest

import gristmill

NOTEBOOK = pathlib.Path(__file__).resolve().parents[1] / "examples" / "texts.ipynb"
CELL_S = 120


@pytest.fixture
def notebook(tmp_path):
    """The notebook after its run in an empty folder: the outputs by the ids of its cells."""
    for library in ("nbclient", "ipykernel", "pandas", "tqdm"):
        pytest.importorskip(library)
    import nbclient
    import nbformat

    read = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(read)
    nbclient.NotebookClient(read, timeout=CELL_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    return {cell.id: cell.outputs for cell in read.cells if cell.cell_type == "code"}


def printed(outputs, stream="stdout"):
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == stream)


def test_the_notebook_maps_its_own_functions(notebook, tmp_path):
    bar = printed(notebook["map"], "stderr")
    assert "measure" in bar and "5/5" in bar
    assert printed(notebook["failed"]) == "'42': ValueError: '42' has no words\n'...': ValueError: '...' has no words\n"
    [table] = [output.data for output in notebook["frame"] if output.output_type == "execute_result"]
    first = table["text/plain"].splitlines()
    assert first[0].split() == ["words", "longest", "vowels"]
    assert "The mills of God grind slowly" in table["text/html"] and "watermill" in table["text/html"]
    assert printed(notebook["changed"]) == "[0, 0] 2 failed before\n"
    # The results outlive the kernel.
    app = gristmill.App(tmp_path / "notebook.db")
    counts = app.counts(queue="run:texts")
    app.close()
    assert (counts["completed"], counts["dead"]) == (3, 2)
