"""Maps: order, failures, bounded memory, resuming."""

import itertools
import os
import shutil
import signal
import subprocess
import sys

import pytest
import shop

import gristmill
from gristmill import _map


def test_results_come_in_order_and_once(app):
    assert list(app.map(shop.double.function, range(5_000))) == [2 * number for number in range(5_000)]
    assert list(app.map(shop.double.function, [])) == []


def _parent(_):
    return os.getppid(), os.environ.get("GRISTMILL_TEST_COLOUR"), os.getcwd()


def _written(_):
    with open("file", "w"):
        return os.getcwd()


def test_maps_share_the_interpreter_that_their_processes_are_forked_from(app, tmp_path, monkeypatch):
    [first] = app.map(_parent, [1])
    assert [first] == list(app.map(_parent, [1]))
    # Not where they would begin in another way.
    monkeypatch.setenv("GRISTMILL_TEST_COLOUR", "red")
    [red] = app.map(_parent, [1])
    assert red[0] != first[0] and red[1] == "red"
    monkeypatch.chdir(tmp_path)
    [moved] = app.map(_parent, [1])
    assert moved[0] not in (first[0], red[0]) and moved[2] == str(tmp_path)
    for _ in range(2):
        # A folder that takes the path of a removed one is another folder.
        os.mkdir("out")
        os.chdir("out")
        assert list(app.map(_written, [1])) == [str(tmp_path / "out")]
        os.chdir(tmp_path)
        shutil.rmtree("out")
    umask = os.umask(0o077)
    try:
        [masked] = app.map(_parent, [1])
    finally:
        os.umask(umask)
    assert masked[0] != moved[0] and masked[1:] == moved[1:]


def test_a_map_goes_on_where_the_shared_interpreter_was_killed(app):
    [(first, *_)] = app.map(_parent, [1])
    os.kill(first, signal.SIGKILL)
    # This map may still meet it; the next one has another.
    assert len(list(app.map(_parent, [1]))) == 1
    [(second, *_)] = app.map(_parent, [1])
    assert second != first


def test_the_items_of_a_map_are_counted_as_submitted(tmp_path):
    app = shop.define(gristmill.App(str(tmp_path / "jobs.db")))
    assert len(list(app.map(shop.double.function, range(2_500)))) == 2_500
    # The counts are in the store once it is closed.
    app.close()
    app = gristmill.App(str(tmp_path / "jobs.db"))
    counted = app.stats()["hops"]["submit"]
    app.close()
    assert counted["items"] == 2_500
    assert counted["batches"] == sum(counted["end_reasons"].values()) == 3


def test_results_as_they_come_are_all_of_them(app):
    read, write = os.pipe()
    path = f"/proc/{os.getpid()}/fd/{read}"

    def wait_first(number):
        if number == 0:
            with open(path) as file:
                file.readline()
        return number

    results = app.map(wait_first, range(3_000), ordered=False, processes=2, timeout="30s")
    values = [next(results)]
    assert values != [0]
    os.write(write, b"go\n")
    values.extend(results)
    assert sorted(values) == list(range(3_000))
    os.close(read)
    os.close(write)


def test_a_failure_is_raised_in_its_place_or_returned(app):
    refuse = shop.refuse_odd.function
    results = app.map(refuse, [2, 4, 5, 6])
    assert [next(results), next(results)] == [2, 4]
    with pytest.raises(gristmill.JobFailed, match="5 is odd"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    values = list(app.map(refuse, [1, 2, 3], return_exceptions=True))
    assert values[1] == 2 and [type(value) for value in (values[0], values[2])] == [gristmill.JobFailed] * 2


def test_an_endless_iterable_is_read_only_so_far_ahead(app):
    taken = itertools.count()
    last = [0]

    def items():
        for number in taken:
            last[0] = number
            yield number

    results = app.map(shop.double.function, items())
    assert list(itertools.islice(results, 20_000)) == [2 * number for number in range(20_000)]
    results.close()
    assert last[0] < 20_000 + _map.ITEMS_MAX + _map.CHUNK_ITEMS
    # What was not taken is not left for others.
    counts = app.counts()
    assert counts["waiting"] == counts["running"] == 0


def test_an_exception_of_the_iterable_is_raised(app):
    def items():
        yield 1
        raise KeyError("the iterable's own")

    with pytest.raises(KeyError, match="the iterable's own"):
        list(app.map(shop.double.function, items()))


def test_lambdas_and_local_functions_travel_with_what_they_enclose(app):
    factor = 3
    assert list(app.map(lambda number: factor * number, [1, 2])) == [3, 6]

    def power(number, exponent=2):
        return number**exponent

    assert list(app.map(power, [(2, 3), {"number": 3}], starmap=True)) == [8, 9]
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match="`lock`"):
        list(app.map(lambda number: lock and number, [1]))


def test_built_in_functions_are_found(app):
    assert list(app.map(str.upper, ["hello"])) == ["HELLO"]
    assert list(app.map(abs, [-1])) == [1]


def test_dataclasses_come_back_as_such(app):
    pictures = [shop.Picture(str(number), number) for number in range(3)]
    halves = list(app.map(shop.halve.function, pictures))
    assert halves == [shop.Picture(str(number), number // 2) for number in range(3)]


RESUMED = """
    import os, signal
    import gristmill

    app = gristmill.App("jobs.db")
    def work(number):
        if number == 2_500 and not os.path.exists("second"):
            os.kill(int(open("parent").read()), signal.SIGKILL)
            # The kernel ends this process after its parent.
            signal.pause()
        with open("ran", "a") as file:
            file.write(f"{number}\\n")
        return number + 1

    if __name__ == "__main__":
        open("parent", "w").write(str(os.getpid()))
        print(sum(app.map(work, range(4_000), name="sums", processes=1)))
"""


def test_a_map_goes_on_after_a_crash_and_does_not_run_again_what_was_done(run_python, tmp_path):
    killed = run_python(RESUMED, check=False)
    assert killed.returncode == -signal.SIGKILL
    (tmp_path / "second").touch()
    committed = gristmill.App(tmp_path / "jobs.db").counts()["completed"]
    assert committed > 0
    resumed = run_python(RESUMED)
    assert int(resumed.stdout) == sum(range(1, 4_001))
    ran = [int(line) for line in (tmp_path / "ran").read_text().split()]
    assert set(ran) == set(range(4_000))
    assert len(ran) <= 4_000 + (2_500 - committed), "what was committed ran once"
    # A third time, nothing runs, and the results are the same.
    assert run_python(RESUMED).stdout == resumed.stdout
    assert len((tmp_path / "ran").read_text().split()) == len(ran)


def test_a_name_stands_for_its_items(app):
    double = shop.double.function
    assert sum(app.map(double, range(10), name="n")) == 90
    with pytest.raises(ValueError, match="not those of the time before"):
        list(app.map(double, range(1, 11), name="n"))
    with pytest.raises(ValueError, match="not those of the time before"):
        list(app.map(double, range(5), name="n"))
    with pytest.raises(ValueError, match="another run"):
        list(app.map(shop.refuse_odd.function, range(10), name="n"))
    # More items are appended.
    assert sum(app.map(double, range(20), name="n")) == 380
    assert app.forget("n") and not app.forget("n")
    assert list(app.map(double, [7], name="n")) == [14]


def test_failed_items_run_again_when_a_map_is_resumed(app, tmp_path):
    flag = str(tmp_path / "flag")

    def need_flag(number):
        if not os.path.exists(flag):
            raise OSError("no flag")
        return number

    values = list(app.map(need_flag, range(3), name="flags", return_exceptions=True))
    assert [type(value) for value in values] == [gristmill.JobFailed] * 3
    open(flag, "w").close()
    assert list(app.map(need_flag, range(3), name="flags")) == [0, 1, 2]


def test_items_that_are_cancelled_from_outside_end_as_such(app):
    """No report of the map's own worker tells of them."""
    read, write = os.pipe()
    path = f"/proc/{os.getpid()}/fd/{read}"

    def wait_first(number):
        if number == 0:
            with open(path) as file:
                file.readline()
        return number

    results = app.map(wait_first, range(3), ordered=False, processes=2, return_exceptions=True)
    assert next(results) == 1
    engine = app.engine()
    assert engine.cancel_jobs([(1, 0)]) == 1
    os.write(write, b"go\n")
    rest = list(results)
    failed = [value for value in rest if isinstance(value, gristmill.JobFailed)]
    assert len(rest) == 2 and [value.state for value in failed] == ["cancelled"]
    os.close(read)
    os.close(write)


def test_one_process_at_a_time_runs_a_name(app):
    results = app.map(shop.double.function, range(3), name="held")
    assert next(results) == 0
    with pytest.raises(RuntimeError, match="another process"):
        next(app.map(shop.double.function, range(3), name="held"))
    link = f"{app.store}.link"
    os.symlink(app.store, link)
    with pytest.raises(RuntimeError, match="another process"):
        next(gristmill.App(link).map(shop.double.function, range(3), name="held"))
    results.close()
    assert list(app.map(shop.double.function, range(3), name="held")) == [0, 2, 4]


def test_a_main_script_needs_no_guard(run_python):
    ended = run_python(
        """
        import gristmill
        from dataclasses import dataclass

        app = gristmill.App("jobs.db")

        @dataclass
        class Point:
            x: int

        def shift(point: Point) -> Point:
            return Point(point.x + 1)

        print([point.x for point in app.map(shift, [Point(1), Point(2)])])
        """
    )
    assert ended.stdout == "[2, 3]\n"


def test_functions_without_a_file_travel_with_their_globals(run_python):
    ended = run_python(
        """
        import gristmill, math
        from json import dumps as write
        app = gristmill.App("jobs.db")
        FACTOR = 2
        def root(number: float) -> float:
            return math.sqrt(number)
        def even(number):
            return number == 0 or odd(number - 1)
        def odd(number):
            return number != 0 and even(number - 1)
        def both(number):
            return [FACTOR * root(number), write({"even": even(number)})]
        print(list(app.map(both, [4, 9])))
        """,
        as_file=False,
    )
    assert ended.stdout == """[[4.0, '{"even": true}'], [6.0, '{"even": false}']]\n"""


def test_work_at_the_import_of_a_module_is_refused(run_python, tmp_path):
    (tmp_path / "eager.py").write_text(
        "import gristmill\napp = gristmill.App('jobs.db')\n"
        "@app.job\ndef one(payload):\n    return 1\none.submit(0)\n"
    )
    ended = run_python("import eager\nprint(list(eager.one.map([1])))", check=False)
    assert ended.returncode == 1
    assert "one.submit(…) runs while a worker imports the module eager" in ended.stderr


def test_control_c_ends_a_map(tmp_path):
    program = (
        "import gristmill, time\n"
        "app = gristmill.App('jobs.db')\n"
        "def slow(number):\n"
        "    if number: time.sleep(1)\n"
        "    return number\n"
        "try:\n"
        "    for value in app.map(slow, range(100), processes=1): print(value, flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', app.counts()['waiting'])\n"
    )
    (tmp_path / "slow.py").write_text(program)
    running = subprocess.Popen([sys.executable, "slow.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "0\n"
    running.send_signal(signal.SIGINT)
    rest, _ = running.communicate(timeout=30)
    assert rest.endswith("interrupted 0\n") and rest.count("\n") < 10
