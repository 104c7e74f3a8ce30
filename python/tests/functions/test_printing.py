"""What mapped functions print is shown by the program that maps them, as multiprocessing shows it; what a map leaves in its store."""

import os
import re
import subprocess
import sys
import textwrap
import threading

import pytest

import gristmill

HEAD = 'import sys, gristmill\napp = gristmill.App("jobs.db")\n'


def test_prints_are_shown_before_the_result_and_on_their_stream(run_python):
    ended = run_python(
        HEAD
        + textwrap.dedent(
            """
            def speak(x):
                print("item", x)
                print("warning", x, "ü", file=sys.stderr)
                return x
            for value in app.map(speak, [1, 2], processes=1):
                print("result", value)
            """
        )
    )
    lines = ended.stdout.splitlines()
    assert sorted(lines) == ["item 1", "item 2", "result 1", "result 2"]
    for number in "12":
        assert lines.index(f"item {number}") < lines.index(f"result {number}")
    assert ended.stderr.splitlines() == ["warning 1 ü", "warning 2 ü"]


def test_prints_of_several_processes_stay_whole_lines(run_python):
    ended = run_python(
        HEAD
        + textwrap.dedent(
            """
            def speak(x):
                for part in range(5):
                    print("item", x, "part", part, "of", "five")
            list(app.map(speak, range(200), processes=4))
            """
        )
    )
    assert sorted(ended.stdout.splitlines()) == sorted(f"item {x} part {part} of five" for x in range(200) for part in range(5))


@pytest.mark.parametrize("way", ["app.executor(1).submit(speak, 1).result(30)", "joblib.Parallel()([joblib.delayed(speak)(1)])"])
def test_prints_of_executors_and_joblib_are_shown(run_python, way):
    if "joblib" in way:
        pytest.importorskip("joblib")
    ended = run_python(
        HEAD
        + textwrap.dedent(
            f"""
            import subprocess
            def speak(x):
                print("before", flush=True)
                subprocess.run(["echo", "program"])
                print("after")
            if "joblib" in {way!r}:
                import joblib
                from gristmill.integrations.joblib import register
                register(app)
                joblib.parallel_config("gristmill", n_jobs=2)
            {way}
            print("end")
            """
        )
    )
    assert ended.stdout.splitlines() == ["before", "program", "after", "end"]


def test_the_log_of_a_job_has_its_programs_in_the_order_in_which_they_wrote(app):
    @app.job
    def speak(x):
        import subprocess

        for number in range(3):
            print("parent", number)
            subprocess.run(["echo", "child", str(number)], check=True)

    handle = speak.submit(1)
    app.drain()
    expected = [f"{who} {number}" for number in range(3) for who in ("parent", "child")]
    assert handle.log().splitlines() == expected


def test_prints_are_shown_while_the_function_runs(tmp_path):
    (tmp_path / "program.py").write_text(
        HEAD
        + textwrap.dedent(
            """
            import os, time
            def speak(x):
                print("begun")
                while not os.path.exists("go"):
                    time.sleep(0.01)
                print("ended")
            list(app.map(speak, [1]))
            """
        )
    )
    process = subprocess.Popen([sys.executable, "program.py"], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    stuck = threading.Timer(60, process.kill)
    stuck.start()
    assert process.stdout.readline() == "begun\n"
    (tmp_path / "go").touch()
    assert process.communicate()[0] == "ended\n" and process.returncode == 0
    stuck.cancel()


def test_a_closed_standard_output_fails_no_map(tmp_path):
    source = HEAD + "def speak(x):\n    print('x' * 1000)\n    return x\nwith open('sum', 'w') as file:\n"
    source += "    file.write(str(sum(app.map(speak, range(2000)))))\n"
    (tmp_path / "program.py").write_text(source)
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "program.py"], stdout=write, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(write)
    os.close(read)
    process.communicate(timeout=60)
    assert (tmp_path / "sum").read_text() == str(sum(range(2000)))


def test_a_log_that_is_cut_says_so_where_it_is_shown(run_python):
    ended = run_python(HEAD + "def speak(x):\n    print('x' * 99)\nlist(app.map(lambda x: [speak(x) for _ in range(1000)], [1]))\n")
    assert "… what else this job prints is dropped" in ended.stdout and len(ended.stdout) < 70_000


# --- what a map leaves ---


def test_an_unnamed_map_leaves_nothing_and_a_named_one_its_results(app, tmp_path):
    def half(x):
        return 6 // x

    def rows():
        return sum(app.counts().values()), [name for name, _ in app.engine().runs()]

    for _ in range(3):
        assert list(app.map(half, [1, 2, 3])) == [6, 3, 2]
        assert rows() == (0, [])
    with pytest.raises(gristmill.JobFailed, match="ZeroDivisionError"):
        list(app.map(half, [1, 0]))
    assert rows() == (0, [])
    begun = app.map(half, [1] * 50_000)
    assert next(begun) == 6
    begun.close()
    assert rows() == (0, [])
    with pytest.raises(TypeError, match="item 1"):
        list(app.map(half, [1, object()]))
    assert rows() == (0, [])
    assert list(app.map(half, [1, 2], name="kept")) == [6, 3]
    assert rows() == (2, ["kept"])
    assert not [path for path in os.listdir(tmp_path) if path.endswith(".lock")]


def test_the_store_does_not_grow_with_unnamed_maps(tmp_path):
    def size_after(maps):
        path = tmp_path / f"{maps}.db"
        with gristmill.App(path, durable=False) as app:
            for _ in range(maps):
                assert sum(1 for _ in app.map(lambda x: x * 500, ["x"] * 5_000)) == 5_000
        return path.stat().st_size

    assert size_after(5) < 1.5 * size_after(1)


def test_a_map_of_a_killed_process_is_removed_by_the_next_one(run_python, app):
    ended = run_python(
        HEAD
        + textwrap.dedent(
            """
            import os, signal
            for value in app.map(lambda x: x, range(10_000)):
                os.kill(os.getpid(), signal.SIGKILL)
            """
        ),
        check=False,
    )
    assert ended.returncode == -9
    [(name, _)] = app.engine().runs()
    assert re.fullmatch("map-[0-9a-f]{16}", name) and sum(app.counts().values()) > 0
    # One that runs at the same time is not touched.
    begun = app.map(abs, [-1, -2])
    assert next(begun) == 1
    other = gristmill.App(app.store, durable=False)
    assert list(other.map(abs, [-3])) == [3]
    other.close()
    assert list(begun) == [2]
    assert app.engine().runs() == [] and sum(app.counts().values()) == 0
