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


CELLS = [
    "import gristmill\napp = gristmill.App('cells.db')",
    """
import dataclasses, enum, functools, pydantic, typing
@dataclasses.dataclass
class Point:
    x: int
class Size(enum.Enum):
    SMALL = "s"
class Model(pydantic.BaseModel):
    n: int
    size: Size = Size.SMALL
    inner: "Model | None" = None
class Refused(ValueError):
    permanent = True
class Row(typing.NamedTuple):
    a: int
def plus_one(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 1
    return wrapper
@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
@plus_one
def wrapped(n):
    return n + step
step = 1
""",
    """
def move(point: Point) -> Point:
    return Point(point.x + step)
def grow(model: Model) -> Model:
    assert type(model.size) is Size
    return Model(n=model.n + Row(1).a, inner=model)
def refuse(n):
    raise Refused(f"{n} is refused")
step = 2
print(list(app.map(move, [Point(1)])))
print(list(app.map(grow, [Model(n=1)])))
print(list(app.map(fib, [10])), list(app.map(wrapped, [1])))
print([error.type for error in app.map(refuse, [1], return_exceptions=True)])
""",
    "step = 3\nprint(list(app.map(move, [Point(1)])), list(app.map(lambda n: Point(n).x, [5])))",
    "class Point:\n    x = 'new'\ndef read(n):\n    return Point.x\nprint(list(app.map(read, [1])))",
    "def speak(n):\n    print('cell', n)\n    return n\nwith app.executor(1) as executor:\n    "
    "print(list(app.map(speak, [1])), executor.submit(speak, 2).result())",
]


def test_classes_and_decorated_functions_of_cells_travel(tmp_path):
    for library in ("nbclient", "ipykernel", "pydantic"):
        pytest.importorskip(library)
    import nbclient
    import nbformat

    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source.strip()) for source in CELLS])
    nbclient.NotebookClient(made, timeout=CELL_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [printed(cell.outputs) for cell in made.cells][2:] == [
        "[Point(x=3)]\n[Model(n=2, size=<Size.SMALL: 's'>, inner=Model(n=1, size=<Size.SMALL: 's'>, inner=None))]\n"
        "[55] [4]\n['Refused']\n",
        "[Point(x=4)] [5]\n",
        "['new']\n",
        "cell 1\ncell 2\n[1] 2\n",
    ]
