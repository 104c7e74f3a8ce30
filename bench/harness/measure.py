"""Runs measurements round by round."""

import sys
import time

from . import machine
from .report import number

# The largest number of runs for each requested one, because disturbed runs are repeated.
ATTEMPTS_PER_RUN_MAX = 2


def chosen(measurements, wanted):
    """The measurements whose ids are in `wanted`, separated by commas; all for `None`."""
    if wanted is None:
        return measurements
    names = wanted.split(",")
    known = [measurement.id for measurement in measurements]
    for name in names:
        if name not in known:
            raise SystemExit(f"no measurement is called `{name}`; there are {', '.join(known)}")
    return [measurement for measurement in measurements if measurement.id in names]


def measure(measurement, runs, ours_only, others_seconds_max=None, failures=None,
            attempts_per_run_max=ATTEMPTS_PER_RUN_MAX):
    """Runs every contender in turn, round by round; repeats disturbed rounds as long as that is allowed. Another
    contender than ours is not run again once its runs took `others_seconds_max` together; where `failures` is given,
    one that fails is left out, and what it said is added to them by its name."""
    contenders = {name: run for name, run in measurement.contenders.items() if name in measurement.ours or not ours_only}
    samples = {name: [] for name in contenders}
    clean = dict.fromkeys(contenders, 0)
    seconds = dict.fromkeys(contenders, 0.0)
    failed = set()
    measurement.warm_up()
    for _ in range(runs * attempts_per_run_max):
        for name, run in contenders.items():
            seconds_max = measurement.ours_seconds_max if name in measurement.ours else others_seconds_max
            is_slow = seconds_max is not None and seconds[name] >= seconds_max
            if clean[name] >= runs or is_slow or name in failed:
                continue
            began = time.monotonic()
            try:
                sample = run()
            except RuntimeError as error:
                if name in measurement.ours or failures is None:
                    raise
                failed.add(name)
                failures[name] = str(error)
                print(f"  {measurement.id:16} {name:36} failed: {error}", file=sys.stderr, flush=True)
                continue
            seconds[name] += time.monotonic() - began
            samples[name].append(sample)
            is_clean = sample.others_cores < machine.DISTURBED_CORES
            clean[name] += is_clean
            figures = ", ".join(f"{number(sample.figures[f.key])} {f.unit}" for f in measurement.figures)
            disturbed = "" if is_clean else f"   (disturbed: others used {sample.others_cores:.1f} cores)"
            print(f"  {measurement.id:16} {name:36} {figures}{disturbed}", file=sys.stderr, flush=True)
    return {name: all_of_it for name, all_of_it in samples.items() if all_of_it}
