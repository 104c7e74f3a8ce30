"""What an item is: one argument, several of several iterables, or all of a tuple."""

import functools
import json
import math
import os.path

import pytest
import shop

import gristmill


def area(box, scale=2.0):
    return [box, scale]


def subtract(left, right):
    return left - right


def gather(*numbers, **named):
    return [list(numbers), named]


def first_of(first, /, second=0, *rest, third=0):
    return [first, second, list(rest), third]


def named_only(*, number):
    return -number


def open_to_names(text, **named):
    return [text, named]


@pytest.mark.parametrize(
    ("function", "item", "value"),
    [
        (area, (3, 4), [[3, 4], 2.0]),
        (area, [3, 4], [[3, 4], 2.0]),
        (area, {"box": 1, "scale": 3}, [{"box": 1, "scale": 3}, 2.0]),
        (area, 5, [5, 2.0]),
        (json.loads, "[1]", [1]),
        (lambda x, y=1: x + y, 1, 2),
        (functools.partial(area, scale=1), (3, 4), [[3, 4], 1]),
        (gather, (1, 2), [[[1, 2]], {}]),
        (first_of, (1, 2), [[1, 2], 0, [], 0]),
        (open_to_names, {"a": 1}, [{"a": 1}, {}]),
        (max, [1, 3, 2], 3),
        (os.path.join, "a", "a"),
        (shop.add.function, 1, 11),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_item_is_one_argument(app, function, item, value):
    assert list(app.map(function, [item])) == [value]
    job = app.job(function, name="of_a_submit") if not isinstance(function, functools.partial) else app.job(function)
    submitted = job.submit_many([item])
    app.drain()
    assert submitted.results() == [value]


def test_numpy_functions_take_one_argument(app):
    numpy = pytest.importorskip("numpy")
    assert list(app.map(numpy.mean, [[1, 2, 3], [4]])) == [2, 4]


@pytest.mark.parametrize(
    ("function", "item", "value"),
    [
        (area, (3, 4), [3, 4]),
        (area, [3, 4], [3, 4]),
        (area, {"box": 1}, [1, 2.0]),
        (subtract, {"left": 5, "right": 3}, 2),
        (abs, (-1,), 1),
        (gather, (1, 2), [[1, 2], {}]),
        (gather, {"a": 1}, [[], {"a": 1}]),
        (first_of, (1, 2, 3, 4), [1, 2, [3, 4], 0]),
        (open_to_names, {"text": "a", "other": 2}, ["a", {"other": 2}]),
        (named_only, {"number": 3}, -3),
        (math.pow, (2, 3), 8),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_with_starmap_an_item_is_all_arguments(app, function, item, value):
    assert list(app.map(function, [item], starmap=True)) == [value]
    submitted = app.job(function, name="of_a_submit").submit_many([item], starmap=True)
    app.drain()
    assert submitted.results() == [value]


def test_each_iterable_gives_an_argument(app):
    assert list(app.map(subtract, [5, 7, 9], iter([1, 2]))) == [4, 5]
    assert list(app.job(subtract).map((n for n in (5, 7)), [(1), 2])) == [4, 5]
    assert list(app.map(gather, [1], [2], [3])) == [[[1, 2, 3], {}]]


def test_an_item_that_does_not_fit_is_refused_with_the_remedy(app):
    with pytest.raises(TypeError, match=r"an item is one argument, and the parameters are \(left, right\): give starmap=True"):
        list(app.map(subtract, [(1, 2)]))
    with pytest.raises(TypeError, match="an item is one argument"):
        app.job(subtract).submit_many([(1, 2)])
    with pytest.raises(TypeError, match=r"item 1: the arguments \(1, 2, 3\) do not fit"):
        list(app.map(subtract, [(1, 2), (1, 2, 3)], starmap=True))
    with pytest.raises(TypeError, match="item 0: with starmap=True, an item is a tuple, list or dict of arguments, and not 'ab'"):
        list(app.map(subtract, ["ab"], starmap=True))
    with pytest.raises(TypeError, match="starmap=True is for one iterable"):
        app.map(subtract, [1], [2], starmap=True)
    with pytest.raises(TypeError, match="number"):
        list(app.map(named_only, [1]))
    with pytest.raises(TypeError, match="has the name of another parameter"):
        app.job(lambda first, /, **named: None, name="twice").submit(1, first=2)
    assert app.counts()["waiting"] == 0


def test_rows_of_tables_are_arguments_by_name_where_the_columns_are_parameters(app):
    pyarrow = pytest.importorskip("pyarrow")
    sizes = pyarrow.table({"left": [5, 7], "right": [1, 2]})
    assert list(app.map(subtract, sizes)) == [4, 5]
    assert list(app.map(lambda row: row["left"], sizes)) == [5, 7]
    # An optional parameter leaves the row one argument.
    assert list(app.map(area, sizes)) == [[{"left": 5, "right": 1}, 2.0], [{"left": 7, "right": 2}, 2.0]]
    assert list(app.map(area, sizes.rename_columns(["box", "scale"]))) == [[5, 1], [7, 2]]
    with pytest.raises(TypeError, match=r"the columns \(a, right\) are not the parameters \(left, right\)"):
        list(app.map(subtract, sizes.rename_columns(["a", "right"])))


def test_a_payload_that_is_no_object_of_parameters_fails_its_job(app):
    job = app.job(subtract, retries=0)
    [handle] = gristmill.Job(app, abs, job.name, job.queue, job.options).submit_many([5])
    app.drain()
    with pytest.raises(gristmill.JobFailed, match=r"the payload is 5: a function of the parameters \(left, right\)"):
        handle.result()


def test_open_names_are_arguments_of_a_submit(app):
    job = app.job(open_to_names)
    handle = job.submit("a", other=2, priority=3)
    app.drain()
    assert handle.result() == ["a", {"other": 2}]
