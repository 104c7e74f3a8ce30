"""How functions and other callables reach a worker's processes."""

import functools

import shop

SCRIPT = """
    import functools
    import gristmill

    app = gristmill.App("jobs.db")

    def square(number):
        return number * number

    squares = list(app.map(square, [1, 2]))
    place = {value: at for at, value in enumerate(squares)}

    class Times:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, number):
            return number * self.factor

    def find(value):
        return place[value]

    print(list(app.map(find, squares)))
    print(list(app.map(lambda value: place[value] + 1, squares)))
    print(list(app.map(Times(7), [2])))

    @app.job
    def later(value: int) -> int:
        return find(value)

    handle = later.submit(4)
    print(app.drain(), handle.result())
    if __name__ == "__main__":
        factor = 3
        print(list(app.map(lambda number: factor * number, [1])))
"""


def test_what_a_script_defines_below_its_first_map_travels(run_python):
    assert run_python(SCRIPT).stdout == "[0, 1]\n[1, 2]\n[14]\n1 1\n[3]\n"


def test_what_a_function_needs_and_cannot_travel_is_named(run_python):
    source = """
        import gristmill, threading
        app = gristmill.App("jobs.db")
        def one(number):
            return number
        list(app.map(one, [1]))
        lock = threading.Lock()
        list(app.map(lambda number: lock.locked(), [1]))
    """
    ended = run_python(source, check=False)
    assert "TypeError: the function refers to `lock`, a lock that cannot travel" in ended.stderr


class Shifter:
    def __init__(self, by):
        self.by = by

    def __call__(self, number):
        return number + self.by

    def shift(self, number):
        return number - self.by


def scaled(number, *, factor):
    return factor * number


def test_partials_methods_and_callable_objects_travel_with_what_they_hold(app):
    assert list(app.map(functools.partial(scaled, factor=3), [1, 2])) == [3, 6]
    assert list(app.map(functools.partial(shop.add.function, 5), [1, 2])) == [6, 7]
    assert list(app.map(Shifter(10), [1])) == [11]
    assert list(app.map(Shifter(10).shift, [1])) == [-9]
    assert list(app.map("abc".startswith, ["a", "b"])) == [True, False]
    assert list(app.map(functools.partial(lambda left, right: left - right, right=1), [1])) == [0]


def test_a_partial_is_a_job(app):
    job = app.job(functools.partial(scaled, factor=2))
    handle = job.submit(4)
    assert (job.name, app.drain(), handle.result()) == ("scaled", 1, 8)


def test_a_class_of_a_script_travels_as_its_source(run_python):
    ended = run_python(
        """
        import dataclasses, gristmill
        app = gristmill.App("jobs.db")
        list(app.map(abs, [1]))

        @dataclasses.dataclass
        class Point:
            x: int

            def doubled(self) -> int:
                return 2 * self.x

        def double(point: Point) -> int:
            return point.doubled()

        print(list(app.map(double, [Point(3)])))
        """
    )
    assert ended.stdout == "[6]\n"


def test_a_lambda_holds_an_object_of_the_script(run_python):
    ended = run_python(
        """
        import gristmill
        app = gristmill.App("jobs.db")
        class Point:
            x = 4
        def mapped(point):
            return list(app.map(lambda number: number + point.x, [1]))
        print(mapped(Point()))
        """
    )
    assert ended.stdout == "[5]\n"


def test_a_script_reads_its_arguments_in_the_worker_too(run_python):
    ended = run_python(
        """
        import gristmill, sys
        factor = int(sys.argv[1])
        app = gristmill.App("jobs.db")
        def times(number):
            return factor * number
        print(list(app.map(times, [1, 2])))
        """,
        "3",
    )
    assert ended.stdout == "[3, 6]\n"


def test_an_error_at_the_import_shows_the_line_and_no_internals(run_python, tmp_path):
    (tmp_path / "model.py").write_text(
        'import os\nif "LOADED" in os.environ:\n    raise OSError("no such model")\ndef one(number):\n    return number\n'
    )
    source = """
        import gristmill, model, os
        os.environ["LOADED"] = "1"
        app = gristmill.App("jobs.db")
        list(app.map(model.one, [1]))
    """
    ended = run_python(source, check=False)
    assert ended.returncode == 1
    assert 'raise OSError("no such model")' in ended.stderr and "model.py" in ended.stderr
    assert '.pickle"' not in ended.stderr and "settings" not in ended.stderr
