"""The jobs of each row, and the bound of their makespan."""

import heapq
import json
import random
from dataclasses import dataclass

# Each row takes about so long at its bound.
SECONDS_AT_BOUND = 2.0
# No contender sleeps and answers more often than this on two cores, so more jobs than this many seconds of them only wait.
SLEEPS_PER_SECOND_MAX = 50_000
NO_OP_JOBS = 400_000
# The heavy tail: seconds, log-normal, as many network calls are, with a timeout.
TAIL_MU, TAIL_SIGMA, TAIL_SECONDS_MAX, TAIL_SEED = -4.5, 1.8, 4.0, 7
TAIL_SECONDS_MEAN = 0.05
JOBS_MIN = 40
BUSY_SHARE = 0.9


@dataclass(frozen=True)
class Work:
    """Jobs of one kind. `seconds` is how long each takes; None where that is drawn from the heavy tail."""

    id: str
    title: str
    seconds: float | None

    @property
    def is_no_op(self):
        return self.seconds == 0

    def jobs(self, slots, share=1.0):
        """How many jobs a row has, or a share of them."""
        if self.is_no_op:
            return max(JOBS_MIN, int(NO_OP_JOBS * share))
        mean = TAIL_SECONDS_MEAN if self.seconds is None else self.seconds
        per_second = min(slots / mean, SLEEPS_PER_SECOND_MAX)
        return max(min(JOBS_MIN, slots * 4), int(per_second * SECONDS_AT_BOUND * share))

    def durations(self, jobs):
        """Seconds that each of so many jobs takes, the same in every run."""
        if self.seconds is not None:
            return [self.seconds] * jobs
        chance = random.Random(TAIL_SEED)
        return [round(min(chance.lognormvariate(TAIL_MU, TAIL_SIGMA), TAIL_SECONDS_MAX), 6) for _ in range(jobs)]


WORKS = (
    Work("0ms", "no-op", 0.0),
    Work("0.1ms", "0.1 ms", 0.000_1),
    Work("1ms", "1 ms", 0.001),
    Work("10ms", "10 ms", 0.01),
    Work("100ms", "100 ms", 0.1),
    Work("tail", "heavy tail", None),
)


def greedy_bound(durations, slots, free_at=()):
    """The makespan of greedy list scheduling: each job, in its order, begins on the slot that is free first. Seconds.
    `free_at` is when slots are free that have work at first; the others are at 0."""
    free_at = sorted(free_at)[-slots:]
    free_at = [0.0] * (slots - len(free_at)) + free_at
    for duration in durations:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)


def once_busy(durations, ends, slots):
    """How a run went once its slots (`BUSY_SHARE` of them) were busy at the same time for the first time: the time from
    then to the last end, over the greedy bound of what was left then. None where they never were. `ends` are seconds,
    one a job; no job is taken to be longer than it was told to be."""
    begins = [end - duration for end, duration in zip(ends, durations)]
    running, busy_at = 0, None
    # Where one job ends and another begins at the same moment, the slot is free between them.
    for at, change in sorted([(begin, 1) for begin in begins] + [(end, -1) for end in ends]):
        running += change
        if running >= BUSY_SHARE * slots:
            busy_at = at
            break
    if busy_at is None:
        return None
    free_at = sorted(end - busy_at for begin, end in zip(begins, ends) if begin <= busy_at < end)
    left = [duration for begin, duration in zip(begins, durations) if begin > busy_at]
    bound = greedy_bound(left, slots, free_at)
    return (max(ends) - busy_at) / bound if bound else None


def naps_file(folder, work, jobs):
    """A JSONL file: the seconds of each job a line."""
    path = folder / f"naps-{work.id}-{jobs}.jsonl"
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text("".join(f"{json.dumps(seconds)}\n" for seconds in work.durations(jobs)), encoding="ascii")
        partial.rename(path)
    return path
