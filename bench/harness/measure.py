"""Runs measurements round by round."""

import sys

from . import machine
from .plan import OURS
from .report import number

# Disturbed runs are repeated, up to so many in all for each that was asked for.
ATTEMPTS_PER_RUN_MAX = 2


def chosen(measurements, wanted):
    """Those whose ids are in `wanted`, separated by commas; all where it is `None`."""
    if wanted is None:
        return measurements
    names = wanted.split(",")
    known = [measurement.id for measurement in measurements]
    for name in names:
        if name not in known:
            raise SystemExit(f"no measurement is called `{name}`; there are {', '.join(known)}")
    return [measurement for measurement in measurements if measurement.id in names]


def measure(measurement, runs, ours_only):
    """Runs every contender in turn, round by round; repeats disturbed rounds as long as that is allowed."""
    contenders = {name: run for name, run in measurement.contenders.items() if name == OURS or not ours_only}
    samples = {name: [] for name in contenders}
    clean = dict.fromkeys(contenders, 0)
    measurement.warm_up()
    for _ in range(runs * ATTEMPTS_PER_RUN_MAX):
        for name, run in contenders.items():
            if clean[name] >= runs:
                continue
            sample = run()
            samples[name].append(sample)
            is_clean = sample.others_cores < machine.DISTURBED_CORES
            clean[name] += is_clean
            figures = ", ".join(f"{number(sample.figures[f.key])} {f.unit}" for f in measurement.figures)
            disturbed = "" if is_clean else f"   (disturbed: others used {sample.others_cores:.1f} cores)"
            print(f"  {measurement.id:16} {name:36} {figures}{disturbed}", file=sys.stderr, flush=True)
    return samples
