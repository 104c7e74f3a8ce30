"""Parquet as an input of `gristmill run`: what a script gets is the same whoever wrote the file, and whether pandas is installed."""

import datetime
import decimal
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import uuid

import pytest

from gristmill._process import program_path

pyarrow = pytest.importorskip("pyarrow")
import pyarrow.parquet  # noqa: E402

# Files that duckdb 2.0.1 and fastparquet 2026.9.0 wrote; int96.parquet has moments of 96 bits, as Spark wrote them.
FILES = pathlib.Path(__file__).resolve().parent / "parquet"
READER = pathlib.Path(__file__).resolve().parents[2] / "crates" / "cli" / "src" / "input" / "parquet_rows.py"


@pytest.fixture(scope="module")
def reader():
    """The module that reads the rows."""
    spec = importlib.util.spec_from_file_location("parquet_rows", READER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path):
    """The results of a script that returns its payload, over a file."""
    (tmp_path / "same.py").write_text("def main(payload):\n    return payload\n")
    (tmp_path / "without" / "pandas").mkdir(parents=True)
    (tmp_path / "without" / "pandas" / "__init__.py").write_text("raise ImportError('not here')\n")

    def run(path, packages=""):
        command = [program_path(), "run", "same.py", str(path), "--quiet", "--restart", "--python", sys.executable]
        environment = dict(os.environ, PYTHONPATH=str(tmp_path / packages) if packages else "")
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        return [line.get("value", line.get("error", {}).get("message")) for line in lines] or ended.stderr

    return run


DATE = datetime.date(2020, 1, 2)
COLUMNS = {
    "ns": (pyarrow.array([1, 1_700_000_000_123_456_789, -1, None], pyarrow.timestamp("ns")),
           ["1970-01-01T00:00:00.000000001", "2023-11-14T22:13:20.123456789", "1969-12-31T23:59:59.999999999", None]),
    "with a zone": (pyarrow.array([0, 1_577_934_245_500], pyarrow.timestamp("ms", "Europe/Berlin")),
                    ["1970-01-01T00:00:00+00:00", "2020-01-02T03:04:05.500+00:00"]),
    "far moments": (pyarrow.array([253_402_300_800_000_000, -62_135_596_800_000_001], pyarrow.timestamp("us")),
                    ["+010000-01-01T00:00:00", "0000-12-31T23:59:59.999999"]),
    "far dates": (pyarrow.array([3_000_000, -800_000, 18_263], pyarrow.date32()), ["+010183-09-21", "-000221-09-04", "2020-01-02"]),
    "dates of 64 bits": (pyarrow.array([DATE], pyarrow.date64()), ["2020-01-02"]),
    "times": (pyarrow.array([1, 86_399_999_999], pyarrow.time64("us")), ["00:00:00.000001", "23:59:59.999999"]),
    "spans": (pyarrow.array([1, -90_000_000_000_001, 0], pyarrow.duration("ns")), ["PT0.000000001S", "-PT90000.000000001S", "PT0S"]),
    "decimals": (pyarrow.array([decimal.Decimal("0E-10"), decimal.Decimal("12345678901234567890.1000000000")],
                               pyarrow.decimal128(38, 10)), ["0.0000000000", "12345678901234567890.1000000000"]),
    "unsigned": (pyarrow.array([2**64 - 1, 0], pyarrow.uint64()), [2**64 - 1, 0]),
    "signed": (pyarrow.array([-(2**63), None], pyarrow.int64()), [-(2**63), None]),
    "floats": (pyarrow.array([0.1, 1e300]), [0.1, 1e300]),
    "maps": (pyarrow.array([[("a", 1), ("b", None)], None, []], pyarrow.map_(pyarrow.string(), pyarrow.int32())),
             [{"a": 1, "b": None}, None, {}]),
    "maps by numbers": (pyarrow.array([[(1, [DATE])]], pyarrow.map_(pyarrow.int32(), pyarrow.list_(pyarrow.date32()))),
                        [{"1": ["2020-01-02"]}]),
    "structs": (pyarrow.array([{"x": 1, "y": [1, None]}, None, {"x": None, "y": []}]),
                [{"x": 1, "y": [1, None]}, None, {"x": None, "y": []}]),
    "bytes": (pyarrow.array([b"ab", b""]), ["YWI=", ""]),
    "categories": (pyarrow.array(["a", "b", None, "a"]).dictionary_encode(), ["a", "b", None, "a"]),
    "lists of one size": (pyarrow.array([[1, 2], None, [3, 4]], pyarrow.list_(pyarrow.int32(), 2)), [[1, 2], None, [3, 4]]),
    "texts": (pyarrow.array(["\u00e9\n", '"', "\u2028"], pyarrow.large_string()), ["\u00e9\n", '"', "\u2028"]),
    "truths and nothing": (pyarrow.array([{"t": True, "n": None}]), [{"t": True, "n": None}]),
}  # fmt: skip


@pytest.mark.parametrize(("column", "expected"), COLUMNS.values(), ids=COLUMNS.keys())
def test_each_type_has_one_form_in_json(reader, column, expected):
    assert json.loads(json.dumps(reader.values(column))) == expected
    # Of a part, as of the whole.
    assert json.loads(json.dumps(reader.values(column.slice(1)))) == expected[1:]


def test_a_run_gets_the_same_with_and_without_pandas(run, tmp_path):
    rows = min(len(column) for column, _ in COLUMNS.values())
    table = pyarrow.table({name: column.slice(0, rows) for name, (column, _) in COLUMNS.items()})
    pyarrow.parquet.write_table(table, tmp_path / "items.parquet")
    found = run("items.parquet")
    assert found == [{name: expected[row] for name, (_, expected) in COLUMNS.items()} for row in range(rows)]
    assert run("items.parquet", "without") == found


def test_a_row_without_json_costs_its_item_alone(run, tmp_path):
    twice = pyarrow.array([[("a", 1)], [], [], [("a", 1), ("a", 2)]], pyarrow.map_(pyarrow.string(), pyarrow.int32()))
    floats = pyarrow.array([0.5, float("nan"), None, 1.0])
    pyarrow.parquet.write_table(pyarrow.table({"x": floats, "y": [[1.0], [2.0], [float("-inf")], []], "m": twice}), tmp_path / "a.parquet")
    assert run("a.parquet") == [
        {"x": 0.5, "y": [1.0], "m": {"a": 1}},
        "a.parquet:2: column `x` has NaN or an infinity, which JSON cannot hold: write null or text instead",
        "a.parquet:3: column `y` has NaN or an infinity, which JSON cannot hold: write null or text instead",
        'a.parquet:4: column `m` has a map with the key "a" twice',
    ]


def test_columns_of_one_name_are_refused(run, tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "two columns are named `a`: rename one of them" in run("a.parquet")


def test_files_of_other_writers(run, tmp_path):
    [row] = run(FILES / "duckdb.parquet")
    assert row == {
        "huge": 1.0,
        "iv": "P1M2DT3.500S",
        "tz": "2019-12-31T22:00:00+00:00",
        "ns": "2020-01-01T00:00:00.123456789",
        "far": "+020000-01-01",
        "u": "00000000-0000-0000-0000-000000000005",
        "m": {"a": 1},
        "s": {"x": 1},
        "j": '{"a":1}',
        "d": "1.10",
        "t": "12:00:00.500",
        "en": "a",
        "l": [1, None],
        "b": "101",
        "bo": True,
        "bl": "qg==",
        "ttz": "10:00:00",
    }
    # fastparquet declares spans as times.
    first, second = run(FILES / "fastparquet.parquet")
    assert first == {"index": "r1", "a": 1.5, "s": "x", "t": "2020-01-01T00:00:00.123456789", "td": "24:00:00", "I": 1, "c": "u"}
    assert [second[name] for name in "astIc"] == [None] * 5
    # As nanoseconds, which pyarrow makes of them, the second and third would be moments of 1816 and 1754.
    assert [row["x"] for row in run(FILES / "int96.parquet")] == ["1970-01-01T00:00:00", "9999-12-31T23:59:59", "0001-01-01T00:00:00"]


def test_files_of_pandas_and_polars(run, tmp_path):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    frame = pandas.DataFrame(
        {
            "t": pandas.to_datetime(["2020-01-01T00:00:00.123456789", None]),
            "span": pandas.to_timedelta(["1 day 00:00:00.000000001", None]),
            "I": pandas.array([1, None], dtype="Int64"),
            "f": [1.5, None],
        }
    )
    frame.to_parquet(tmp_path / "pandas.parquet", engine="pyarrow")
    assert run("pandas.parquet") == [
        {"t": "2020-01-01T00:00:00.123456789", "span": "PT86400.000000001S", "I": 1, "f": 1.5},
        {"t": None, "span": None, "I": None, "f": None},
    ]
    columns = {
        "t": [datetime.datetime(2020, 1, 1, 1, 2, 3, 456789)],
        "span": [datetime.timedelta(days=1, microseconds=5)],
        "of_day": [datetime.time(1, 2, 3, 4)],
        "category": polars.Series(["a"], dtype=polars.Categorical),
        "struct": [{"a": DATE}],
    }
    polars.DataFrame(columns).write_parquet(tmp_path / "polars.parquet")
    assert run("polars.parquet") == [
        {
            "t": "2020-01-01T01:02:03.456789",
            "span": "PT86400.000005S",
            "of_day": "01:02:03.000004",
            "category": "a",
            "struct": {"a": "2020-01-02"},
        }
    ]


def test_dates_and_moments_are_those_of_python(reader):
    chosen = random.Random(7)
    epoch = datetime.datetime(1970, 1, 1)
    for _ in range(20_000):
        day = datetime.date.fromordinal(chosen.randint(1, datetime.date.max.toordinal()))
        assert reader.date_text((day - epoch.date()).days) == day.isoformat()
        moment = datetime.datetime.combine(day, datetime.time()) + datetime.timedelta(microseconds=chosen.randrange(86_399_000_000))
        ticks = (moment - epoch) // datetime.timedelta(microseconds=1)
        text = reader.moment_text(ticks, "us", None)
        assert text == moment.isoformat() or (moment.microsecond % 1000 == 0 and text == moment.isoformat(timespec="milliseconds"))


def test_nested_columns_are_those_of_pyarrow(reader):
    chosen = random.Random(8)

    for _ in range(200):
        items = pyarrow.list_(pyarrow.list_(pyarrow.struct([("a", pyarrow.int32()), ("b", pyarrow.list_(pyarrow.string()))])))

        def struct():
            texts = None if chosen.random() < 0.2 else [chosen.choice(["x", "y", None]) for _ in range(chosen.randrange(3))]
            return None if chosen.random() < 0.2 else {"a": chosen.choice([1, 2, None]), "b": texts}

        def inner():
            return None if chosen.random() < 0.2 else [struct() for _ in range(chosen.randrange(4))]

        rows = [None if chosen.random() < 0.2 else [inner() for _ in range(chosen.randrange(4))] for _ in range(chosen.randrange(1, 9))]
        column = pyarrow.array(rows, items)
        first = chosen.randrange(len(rows))
        assert reader.values(column.slice(first)) == rows[first:]
