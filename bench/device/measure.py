"""Measures Gristmill on a machine with a GPU and 16 cores: `make bench-device`. Prints one JSON object a line."""

import argparse
import json
import multiprocessing
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import busy
import encoders
import gristmill

PARTS = ("gpu", "kernel", "cores")
PINNED = ("submit", "single", "drain", "drain-busy", "run", "pool")
SUBMITTERS, WAIT_S = 8, 300


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="of gpu, kernel and cores")
    parser.add_argument("--program", default="gristmill", help="the program of the same version")
    parser.add_argument("--folder", help="for stores; on a disk")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", default=",".join(encoders.SHAPES))
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=3_000, help="of 5 ms each")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="that do nothing")
    parser.add_argument("--calls", type=int, default=2_000, help="of the kernel in a warm process")
    parser.add_argument("--cores", default="2,4,8,16")
    parser.add_argument("--pinned", choices=PINNED, help="one measurement of `cores`, in this process with its processors")
    return parser.parse_args()


def say(**line):
    print(json.dumps(line), flush=True)


def rate(part, what, unit, measured, **more):
    middle = statistics.median(measured)
    say(part=part, what=what, unit=unit, median=round(middle, 2), all=[round(one, 2) for one in measured], **more)
    return middle


def new_app(folder):
    return gristmill.App(tempfile.mkdtemp(dir=folder) + "/jobs.db")


def premises(options):
    card = shutil.which("nvidia-smi") and subprocess.run(
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    with tempfile.NamedTemporaryFile(dir=options.folder) as file:
        syncs = []
        for _ in range(20):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            syncs.append(1000 * (time.perf_counter() - began))
    kind = subprocess.run(["stat", "-f", "-c", "%T", options.folder], capture_output=True, text=True).stdout.strip()
    say(
        part="premises", card=card, cores=len(os.sched_getaffinity(0)), python=platform.python_version(), kernel=platform.release(),
        processor=next((line.split(": ", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), None),
        threads_a_core=next((line.split(":")[1].strip() for line in subprocess.run(
            ["lscpu"], capture_output=True, text=True).stdout.splitlines() if line.startswith("Thread(s) per core")), None),
        program=subprocess.run([options.program, "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        file_system=kind, fsync_ms=round(statistics.median(syncs), 3),
    )


def alone(name, size, given, repeats):
    """The model alone, in a process of its own: texts a second."""
    encoders.vectors(name, given[:size])
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        for start in range(0, len(given), size):
            encoders.vectors(name, given[start : start + size]).round(5).tolist()
        rates.append(len(given) / (time.perf_counter() - began))
    return rates


def through(options, job, given):
    """Texts a second of a worker of one process, which has the model before."""
    rates = []
    with job.app as app, app.worker(1, jobs=[job.name]):
        job.submit_many(given[:300]).results(timeout=WAIT_S)
        for _ in range(options.repeats):
            began = time.perf_counter()
            found = job.submit_many(given).results(timeout=WAIT_S)
            rates.append(len(given) / (time.perf_counter() - began))
            assert len(found) == len(given)
    return rates


def gpu(options):
    for name in options.models.split(","):
        few = options.texts // (16 if name == "BERT-base" else 8)
        many, some = encoders.texts(options.texts), encoders.texts(few)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for size, given in ((1, some), (64, many), (256, many)):
                found = pool.apply(alone, (name, size, given, options.repeats))
                rate("gpu", f"{name} alone, {size} a call", "texts a second", found, texts=len(given))
        job = new_app(options.folder).job(encoders.ONE[name])
        one = rate("gpu", f"{name}, @app.job", "texts a second", through(options, job, some), texts=few)
        for size in (64, 256):
            job = new_app(options.folder).batch(size=size, wait="5ms")(encoders.MANY[name])
            batched = rate("gpu", f"{name}, @app.batch(size={size})", "texts a second", through(options, job, many), texts=len(many))
            say(part="gpu", what=f"{name}, @app.batch(size={size}) against @app.job", ratio=round(batched / one, 2), asked=5)
    job = new_app(options.folder).batch(size=256, wait="5ms")(encoders.VectorsMinilmPacked)
    rate("gpu", "MiniLM, @app.batch(size=256), vectors as base64", "texts a second", through(options, job, many), texts=len(many))


def run_seconds(options, items, *command):
    """Seconds of `gristmill run`."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        source = pathlib.Path(folder, "items.jsonl")
        source.write_text("".join(f"{number}\n" for number in range(items)))
        before, after = (command[: command.index("--")], command[command.index("--") :]) if "--" in command else (command, ())
        began = time.perf_counter()
        subprocess.run(
            [options.program, "run", *before, str(source), "--store", f"{folder}/jobs.db", "--output", f"{folder}/found.jsonl",
             "--quiet", *(after or ("--python", sys.executable))],
            check=True,
        )
        seconds = time.perf_counter() - began
        found = pathlib.Path(folder, "found.jsonl").read_text().splitlines()
        assert len(found) == items and not any('"error"' in line for line in found), found[:2]
        return seconds


def kernel(options):
    script, few = str(HERE / "kernel.py"), 3
    starts = [run_seconds(options, 1, script, "-j", "1") for _ in range(options.repeats)]
    rate("kernel", "one call, with the start of the process and of the model", "s", starts)
    warm = [1000 * run_seconds(options, options.calls, script, "-j", "1") / options.calls for _ in range(options.repeats)]
    warm_ms = rate("kernel", "gristmill run of the script, warm", "ms a call, with the start", warm, calls=options.calls)
    cold = [1000 * run_seconds(options, few, "-j", "1", "--", sys.executable, script, "{}") / few for _ in range(options.repeats)]
    cold_ms = rate("kernel", "a process for each call", "ms a call", cold, calls=few)
    say(part="kernel", what="warm against a process for each call", ratio=round(cold_ms / warm_ms, 1))


def submit_singly(place, count):
    app = gristmill.App(place)
    job = app.job(busy.same)
    for number in range(count):
        job.submit(number)
    app.close()


def pinned(options):
    """One measurement with this process's processors: a rate."""
    cores = len(os.sched_getaffinity(0))
    if options.pinned == "run":
        return options.items / run_seconds(options, options.items, str(HERE / "busy.py"))
    if options.pinned == "pool":
        with multiprocessing.get_context("spawn").Pool(cores) as pool:
            pool.map(busy.main, range(8 * cores), chunksize=4)
            began = time.perf_counter()
            assert len(pool.map(busy.main, range(options.items), chunksize=4)) == options.items
            return options.items / (time.perf_counter() - began)
    app = new_app(options.folder)
    job, busy_job = app.job(busy.same), app.job(busy.main)
    began = time.perf_counter()
    if options.pinned == "submit":
        job.submit_many(range(options.jobs))
        return options.jobs / (time.perf_counter() - began)
    if options.pinned == "single":
        each = options.jobs // 5000
        makers = [multiprocessing.get_context("spawn").Process(target=submit_singly, args=(app.store, each)) for _ in range(SUBMITTERS)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
            assert maker.exitcode == 0
        return SUBMITTERS * each / (time.perf_counter() - began)
    wanted, count = (job, options.jobs) if options.pinned == "drain" else (busy_job, options.items)
    jobs = wanted.submit_many(range(count))
    began = time.perf_counter()
    app.work(until="empty")
    seconds = time.perf_counter() - began
    assert len(jobs.results(timeout=WAIT_S)) == count
    return count / seconds


def cores(options):
    counts = [int(count) for count in options.cores.split(",")]
    medians = {}
    for what in PINNED:
        for count in counts if what in ("run", "drain-busy") else (counts[0], counts[-1]):
            found = []
            for _ in range(options.repeats):
                done = subprocess.run(
                    ["taskset", "-c", f"0-{count - 1}", sys.executable, __file__, "--pinned", what, "--program", options.program,
                     "--folder", options.folder, "--items", str(options.items), "--jobs", str(options.jobs)],
                    capture_output=True, text=True,
                )
                if done.returncode != 0:
                    say(part="cores", what=what, cores=count, failed=done.stderr[-2000:])
                    break
                found.append(float(done.stdout.split()[-1]))
            if found:
                unit = "items a second" if what in ("run", "pool", "drain-busy") else "jobs a second"
                medians[what, count] = rate("cores", what, unit, found, cores=count)
        if (what, counts[0]) in medians and (what, counts[-1]) in medians:
            scaling = round(medians[what, counts[-1]] / medians[what, counts[0]], 2)
            say(part="cores", what=f"{what}: {counts[-1]} cores against {counts[0]}", ratio=scaling)


def main():
    options = arguments()
    options.folder = options.folder or tempfile.mkdtemp()
    if options.pinned:
        print(pinned(options))
        return
    began = time.perf_counter()
    premises(options)
    for part in options.parts.split(","):
        try:
            {"gpu": gpu, "kernel": kernel, "cores": cores}[part](options)
        except Exception as error:
            say(part=part, failed=repr(error)[-2000:])
        say(part=part, seconds_since_start=round(time.perf_counter() - began))


if __name__ == "__main__":
    main()
