#!/usr/bin/env python3
"""Checks the parts of the benchmark whose mistakes nobody would notice; takes less than a second."""

import fcntl
import sqlite3
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.contenders import Sample
from harness import process
from harness.measure import measure
from harness.plan import OURS, Figure, Measurement
from harness.report import Row, bounds_section
from real import ours, peers, plan, reader, report
from real.work import TAIL_SECONDS_MAX, WORKS, greedy_bound, naps_file, once_busy


def sample(times, cores=0.0, **more):
    return Sample({"times": times, "per_second": 1.0, "seconds": times, "jobs": 10, "bound": 1.0, **more}, cores)


class GreedyBound(unittest.TestCase):
    def test_known_cases(self):
        for durations, slots, bound in (
            ([], 4, 0.0),
            ([1.0] * 4, 4, 1.0),
            ([1.0] * 5, 4, 2.0),
            ([0.1] * 32, 8, 0.4),
            # The long job comes last and nothing runs beside it.
            ([1.0, 1.0, 2.0], 2, 3.0),
            # It comes first, and all the others run beside it.
            ([2.0, 1.0, 1.0], 2, 2.0),
            ([3.0, 1.0, 1.0, 1.0, 1.0], 2, 4.0),
            # Graham's example: in another order it is 7.
            ([1.0] * 6 + [3.0] * 3 + [6.0], 3, 11.0),
            ([5.0, 0.5], 64, 5.0),
        ):
            self.assertAlmostEqual(greedy_bound(durations, slots), bound, msg=f"{durations} on {slots}")

    def test_slots_that_are_busy_at_first(self):
        self.assertAlmostEqual(greedy_bound([1.0, 1.0], 2, [0.5, 2.0]), 2.5)
        self.assertAlmostEqual(greedy_bound([1.0, 1.0], 2, [3.0]), 3.0)

    def test_lies_between_the_mean_load_and_twice_of_it(self):
        durations = WORKS[-1].durations(500)
        for slots in (1, 2, 16):
            bound, mean = greedy_bound(durations, slots), sum(durations) / slots
            self.assertGreaterEqual(bound, max(mean, max(durations)) - 1e-9)
            self.assertLessEqual(bound, mean + max(durations))


class Works(unittest.TestCase):
    def test_the_tail_is_the_same_each_time_and_heavy(self):
        tail = WORKS[-1]
        durations = tail.durations(4_000)
        self.assertEqual(durations[:100], tail.durations(100))
        self.assertLessEqual(max(durations), TAIL_SECONDS_MAX)
        self.assertGreater(max(durations), 100 * sorted(durations)[2_000])

    def test_the_file_has_a_line_a_job(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = naps_file(Path(folder), WORKS[3], 12).read_text().splitlines()
        self.assertEqual(lines, ["0.01"] * 12)

    def test_a_pool_has_chunks_to_try_for_each_work(self):
        for work in WORKS:
            longest = 10.0 if work.seconds is None else work.seconds
            self.assertTrue(next(sizes for seconds, sizes in peers.CHUNKS if longest <= seconds))


class OnceBusy(unittest.TestCase):
    def test_the_start_does_not_count(self):
        # Two slots; the second begins 5 s late, and from then on nothing is lost.
        durations, ends = [1.0] * 9, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 7.0, 7.0]
        self.assertAlmostEqual(once_busy(durations, ends, 2), 1.0)

    def test_an_idle_slot_counts(self):
        # One slot runs the last two one after the other although the other is free.
        self.assertAlmostEqual(once_busy([1.0] * 4, [1.0, 1.0, 2.0, 3.0], 2), 1.5)

    def test_slots_that_are_never_busy_together_give_no_figure(self):
        self.assertIsNone(once_busy([1.0, 1.0], [1.0, 2.0], 2))


class Reader(unittest.TestCase):
    def test_each_outcome_counts_once_when_it_is_first_seen(self):
        """Outcomes come one by one, and their reports are joined while the reader looks."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/store.db"
            writer = sqlite3.connect(path, isolation_level=None)
            writer.execute("CREATE TABLE batch (id INTEGER PRIMARY KEY, count INTEGER)")
            writer.execute('CREATE TABLE report (id INTEGER PRIMARY KEY, count INTEGER, positions TEXT, "values" TEXT)')
            writer.execute("INSERT INTO batch VALUES (1, 2), (2, 1)")
            now = time.time_ns()
            first, first_of_second = 1 * reader.IDS_PER_BATCH, 2 * reader.IDS_PER_BATCH
            steps = iter((
                f"INSERT INTO report VALUES ({first}, 1, '1', '[{now - 5 * 10**9}]')",
                f"UPDATE report SET count = 2, positions = '0-1', \"values\" = '[{now - 3 * 10**9},{now - 5 * 10**9}]'",
                f"INSERT INTO report VALUES ({first_of_second}, 1, '0', '[{now - 10**9}]')",
            ))

            def step(_):
                statement = next(steps, None)
                if statement:
                    writer.execute(statement)

            with patch.object(reader.time, "sleep", step):
                found = reader.ages(reader.File(path), 3)
            writer.close()
        self.assertEqual([round(age / 1e9) for age in found], [1, 3, 5])

    def test_positions_as_both_stores_write_them(self):
        self.assertEqual(reader.positions("0-2,5"), [0, 1, 2, 5])
        self.assertEqual(reader.positions("{[0,3),[5,6)}"), [0, 1, 2, 5])


class Standings(unittest.TestCase):
    def row(self, ours, **others):
        results = {name: report.Result([sample(times)]) for name, times in others.items()}
        return report.Standing(WORKS[3], 16, plan.SQLITE, report.Result([sample(ours)]), results)

    def test_the_least_makespan_over_its_bound_is_first(self):
        self.assertEqual(self.row(1.0, imap=1.2, executor=1.1).first(), "**Gristmill**")
        self.assertEqual(self.row(1.3, imap=1.2, executor=1.1).first(), "executor")
        self.assertEqual(self.row(1.11, imap=1.2, executor=1.1).first(), "even with executor")
        self.assertFalse(self.row(1.3, imap=1.2).is_first)

    def test_queues_on_postgresql_are_no_rivals_of_a_file(self):
        row = self.row(1.2, River=1.0)
        self.assertEqual((row.rivals, row.is_first), ([], True))
        row.where = plan.POSTGRES
        self.assertEqual((row.rivals, row.is_first), (["River"], False))

    def test_disturbed_runs_are_left_out_of_the_median(self):
        result = report.Result([sample(1.0), sample(1.0), sample(9.0, cores=1.0), sample(1.2)])
        self.assertEqual(result.median("times"), 1.0)


class Summary(unittest.TestCase):
    def row(self, where, ours, **others):
        results = {name: report.Result([sample(times)]) for name, times in others.items()}
        return report.Standing(WORKS[3], 16, where, report.Result([sample(ours)]), results)

    def test_counts_each_way_and_names_what_is_missing(self):
        rows = [self.row(plan.SQLITE, 1.0, imap=2.0), self.row(plan.POSTGRES, 1.5, imap=1.0), self.row(plan.AGENTS, 1.0)]
        words = report.summary(rows, {"10ms-2": "failed", "10ms-16, imap": "failed", "River": "no Go"})
        self.assertIn("Of 2 rows with another contender, Gristmill is first in 1, even with the best other in 0, behind in 1.", words)
        self.assertIn("PostgreSQL: of 1, Gristmill is first in 0", words)
        self.assertIn("1 rows have no other contender.", words)
        self.assertIn("Missing, since they failed: 10ms-2.", words)

    def test_a_lost_row_without_a_note_says_so(self):
        (line,) = report.bounds_lines([self.row(plan.SQLITE, 1.5, imap=1.0)])
        self.assertIn("(0.67)", line)
        self.assertEqual(report.bounds_lines([self.row(plan.SQLITE, 1.5)]), ["No other contender was measured."])

    def test_a_missed_figure_has_the_note_of_its_bound(self):
        figure = Figure("latency-p50", "submit to handler start", "p50_ms", "ms", 0.3, more_is_better=False)
        missed = Row(figure, {OURS: [Sample({"p50_ms": 0.9}, 0.0)]}, "")
        words = "\n".join(bounds_section([missed]))
        self.assertIn("**submit to handler start**: The sync of the submit", words)
        self.assertIn("Every target is reached.", bounds_section([]))


class Runs(unittest.TestCase):
    def test_each_run_has_a_store_of_its_own(self):
        """A program that hangs from an earlier run holds a lock beside its store."""
        locks, stores = [], []

        def main_job(bench, program, work, slots, jobs, script, more, store, reads):
            lock = open(f"{store}-run.lock", "w")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locks.append(lock)
            stores.append(store)
            return sample(1.0)

        with tempfile.TemporaryDirectory() as folder:
            bench = plan.RealBench(None, Path(folder), False, 0, 0)
            with patch.object(ours, "_main_job", main_job), patch.object(
                    ours, "_statistics", lambda *_: {"hops": {}, "reports": 0}):
                for _ in range(2):
                    ours._on_file(bench, None, WORKS[0], 2, 10, None, [], False)
            self.assertEqual((len(set(stores)), list(Path(folder).iterdir())), (2, []))
        for lock in locks:
            lock.close()

    def test_a_run_that_hangs_fails(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(RuntimeError, "had not ended"):
            process.run(["sleep", 30], None, folder, quiet_seconds_max=0, seconds_max=0.1)


class Measure(unittest.TestCase):
    def test_ours_run_in_each_round_and_a_slow_other_one_does_not(self):
        ran = {"mine": 0, "slow": 0}

        def run(name):
            ran[name] += 1
            return sample(1.0)

        figure = Figure("makespan", "row", "seconds", "s", 0)
        contenders = {"mine": lambda: run("mine"), "slow": lambda: run("slow")}
        with patch("sys.stderr"):
            measure(Measurement("row", (), (figure,), contenders, ours=("mine",)), 3, False, others_seconds_max=0.0)
        self.assertEqual(ran, {"mine": 3, "slow": 0})


if __name__ == "__main__":
    unittest.main(verbosity=0)
