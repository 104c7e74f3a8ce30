"""Rows of tables as items, and the bar of a map."""

import io

import pytest
import shop

from gristmill._items import progress, tables


def test_rows_of_pandas_are_dicts_of_plain_values(app):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"name": ["a", None, "c"], "width": [1, 2, 3], "ratio": [0.5, float("nan"), 2], "at": pandas.to_datetime(["2026-01-02"] * 3)}
    )
    rows = list(tables.rows(frame))
    assert [row["name"] for row in rows] == ["a", None, "c"] and [row["ratio"] for row in rows] == [0.5, None, 2]
    assert [type(row["width"]) for row in rows] == [int] * 3
    expected = [["a", 1, 0.5, "2026-01-02T00:00:00"], [None, 2, None, "2026-01-02T00:00:00"], ["c", 3, 2, "2026-01-02T00:00:00"]]
    assert list(app.map(lambda row: list(row.values()), frame)) == expected


def test_missing_values_of_pandas_are_none(app):
    pandas = pytest.importorskip("pandas")
    assert list(app.map(shop.same, [pandas.NaT, pandas.NA, pandas.Timestamp("2001-02-03")])) == [None, None, "2001-02-03T00:00:00"]


def test_a_lazy_frame_is_refused_with_the_remedy(app):
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="LazyFrame has no rows yet: give it as items.collect"):
        list(app.map(shop.same, polars.LazyFrame({"a": [1]})))


def test_rows_of_polars_become_fields(app):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"left": range(2_500), "right": [1] * 2_500})
    shop.define(app)
    assert tables.count(frame) == 2_500
    submitted = app.jobs["add"].submit_many(frame)
    app.drain()
    assert submitted.results() == [number + 1 for number in range(2_500)]


def test_rows_of_pyarrow_become_dataclasses(app):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"name": ["a", "b"], "width": [8, 10]})
    shop.define(app)
    halves = [shop.Picture("a", 4), shop.Picture("b", 5)]
    assert list(app.jobs["halve"].map(table)) == halves
    assert list(app.jobs["halve"].map(table.to_reader(max_chunksize=1))) == halves
    assert list(app.map(abs, pyarrow.array([-1, 2]))) == [1, 2]


def test_a_table_is_converted_a_part_at_a_time():
    taken = []

    class Table:
        def __len__(self):
            return 3 * tables.ROWS

        def to_pylist(self):
            raise AssertionError("the whole table was converted")

        def slice(self, first, count):
            taken.append(first)

            class Part:
                def to_pylist(self):
                    return [{"n": number} for number in range(first, first + count)]

            return Part()

    rows = iter(tables.rows(Table()))
    assert next(rows) == {"n": 0} and taken == [0]
    assert len(list(rows)) == 3 * tables.ROWS - 1


def test_a_dataframe_of_another_library_is_read_by_the_interchange_protocol():
    pyarrow = pytest.importorskip("pyarrow")

    class Frame:
        def __init__(self, table):
            self.table = table

        def __dataframe__(self, **options):
            return self.table.__dataframe__(**options)

    assert list(tables.rows(Frame(pyarrow.table({"n": [1, 2]})))) == [{"n": 1}, {"n": 2}]


def test_other_iterables_stay_as_they_are():
    for items in ([1, 2], (3,), {"a": 1}, range(3), "text"):
        assert tables.rows(items) is items
    assert tables.count(iter([1])) is None and tables.count([1]) == 1


def test_a_map_shows_its_progress(app, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_tqdm", lambda name, total: None)
    assert list(app.map(shop.double.function, range(50), progress=True)) == [2 * number for number in range(50)]
    assert "double: 50 of 50, 100 % (" in capsys.readouterr().err


def test_a_bar_of_ones_own_counts_and_stays_open(app):
    class Bar:
        done = 0

        def update(self, n=1):
            self.done += n

    bar = Bar()
    for _ in range(2):
        list(app.map(shop.double.function, range(10), progress=bar))
    assert bar.done == 20


def test_tqdm_is_used_where_it_is_installed(app, capsys):
    pytest.importorskip("tqdm")
    list(app.map(shop.double.function, range(20), progress=True))
    assert "20/20" in capsys.readouterr().err


def test_a_map_with_a_bar_that_is_given_up_ends_its_worker(app):
    results = app.map(shop.double.function, iter(range(5_000)), progress=type("Bar", (), {"update": lambda self, n: None})())
    assert next(results) == 0
    results.close()
    counts = app.counts()
    assert counts["waiting"] == counts["running"] == 0


def test_the_line_says_how_many_of_how_many(monkeypatch):
    file = io.StringIO()
    line = progress.Line("resize", 2_000, file)
    line.update(500)
    assert line.text(2.0) == "resize: 500 of 2,000, 25 % (250/s)"
    assert file.getvalue() == ""
    line.close()
    assert file.getvalue().startswith("resize: 500 of 2,000, 25 %") and file.getvalue().endswith("\n")
    assert progress.Line("resize", None, file).text(0) == "resize: 0 (?/s)"
