"""The queries of the speed table, each with the ratio it has to reach."""

from dataclasses import dataclass

# What a bar_N table holds: a is the row's number, b has 100 values, c has 100,000, the others repeat a.
SEED_COLUMNS = ("a int, b int, c int, d int, e int, f int, g int, h int, i text, "
                "j int, k int, l int, m int, n int, o int")
SEED_ROWS = ("select x, x % 100, x % 100000, x, x, x, x, x, repeat('x', 100), x, x, x, x, x, x "
             "from generate_series(1, {rows}) x")

PARALLEL_AGGREGATE_REACH = 2.5
PARALLEL_OTHER_REACH = 1.0
NOT_VISIBLE_REACH = 2.0
UNCHANGED_REACH = 0.98


@dataclass(frozen=True)
class Case:
    """One query: `{t}` is its table, `{rows}` that table's number of rows."""
    name: str
    sql: str
    reach: float
    is_aggregate: bool = True
    reach_in_parallel: float = None

    @property
    def parallel_reach(self) -> float:
        if self.reach_in_parallel is not None:
            return self.reach_in_parallel
        return PARALLEL_AGGREGATE_REACH if self.is_aggregate else PARALLEL_OTHER_REACH


# OFFSET throws away every group after it was computed, so that sending 100,000 rows to the client,
# which is the same work on both sides, is not what gets measured.
GROUPED = "select {key}, count(*), sum(a), avg(d) from {{t}} group by {key} offset {{rows}}"

SEED_CASES = (
    Case("count(*)", "select count(*) from {t}", 15),
    Case("sum(a)", "select sum(a) from {t}", 5.5),
    Case("count(*), a > 0 and a < N", "select count(*) from {t} where a > 0 and a < {rows}", 7),
    Case("sum(a), same qual", "select sum(a) from {t} where a > 0 and a < {rows}", 7),
    Case("avg of a..e", "select avg(a), avg(b), avg(c), avg(d), avg(e) from {t}", 8),
    Case("avg of a..e, same qual",
         "select avg(a), avg(b), avg(c), avg(d), avg(e) from {t} where a > 0 and a < {rows}", 9),
    Case("avg of j..n (behind the text)", "select avg(j), avg(k), avg(l), avg(m), avg(n) from {t}", 4),
    Case("avg of j..n, same qual",
         "select avg(j), avg(k), avg(l), avg(m), avg(n) from {t} where a > 0 and a < {rows}", 4),
    Case("select *, o < 0 (nothing passes)", "select * from {t} where o < 0", 4, is_aggregate=False),
    Case("group by int4, 100 groups", GROUPED.format(key="b"), 8),
    Case("group by int4, 100,000 groups", GROUPED.format(key="c"), 5),
    Case("count(distinct b), 100 values", "select count(distinct b) from {t}", 4),
    Case("count(distinct c), 100,000 values", "select count(distinct c) from {t}", 4),
    Case("count(distinct c) by b", "select b, count(distinct c) from {t} group by b", 4),
    Case("rollup of b and c % 10", "select b, c % 10, count(*), sum(a) from {t} group by rollup (b, c % 10)", 4),
    Case("stddev(a), corr(a, b)", "select stddev(a), corr(a, b) from {t}", 4),
    Case("four aggregates over a function",
         "select count(*), sum(g), min(g), max(g) from generate_series(1, {rows}) g", 1.1, reach_in_parallel=1),
    Case("groups of a WITH query's rows",
         "with w as materialized (select a, b from {t}) select b, count(*), sum(a) from w group by b", 1.1, reach_in_parallel=1),
    Case("groups of a window function's rows",
         "select b, sum(n) from (select b, row_number() over (order by a) as n from {t}) q group by b", 1.1, reach_in_parallel=1),
    Case("select *, order by b, a limit 10", "select * from {t} order by b, a limit 10", 4, is_aggregate=False),
)

NOT_VISIBLE_CASES = tuple(
    Case(f"{case.name}, not all-visible", case.sql, NOT_VISIBLE_REACH)
    for case in SEED_CASES if case.name in
    ("count(*)", "sum(a)", "sum(a), same qual", "avg of a..e", "group by int4, 100 groups"))

# The same columns, each of them NULL in this share of the rows, and the share of the speed without
# NULLs that has to be left.
NULL_SHARES = {0.1: 0.8, 0.5: 0.6}
NULL_REACH = 1.0
SEED_ROWS_WITH_NULLS = (
    "select " + ", ".join(f"case when random() >= {{share}} then {value} end" for value in
                          ("x", "x % 100", "x % 100000", *"xxxxx", "repeat('x', 100)", *"xxxxxx"))
    + " from generate_series(1, {rows}) x")
NULL_CASES = tuple(
    Case(case.name, case.sql, NULL_REACH) for case in SEED_CASES if case.name in
    ("sum(a)", "sum(a), same qual", "avg of a..e", "avg of j..n (behind the text)", "group by int4, 100 groups"))

# The same rows in as many partitions, and the share of the speed on one table that has to be left.
PARTITIONS = 8
PARTITIONED_SHARE_REACH = 0.9
PARTITION_CASES = tuple(
    Case(case.name, case.sql, case.reach / 2) for case in SEED_CASES if case.name in
    ("sum(a)", "sum(a), same qual", "group by int4, 100 groups"))

# INSERT … SELECT from the seed table into an empty one of these columns.
INSERT_REACH = 1.8
INSERT_CASES = {
    "all columns": (SEED_COLUMNS, "select * from {t}"),
    "two integers": ("a int, b int", "select a, b from {t}"),
    "two integers, primary key": ("a int primary key, b int", "select a, b from {t}"),
}

# No query may be slower than stock, but for the noise of a machine.
TPCH_REACH = {1: 8, 6: 4}
TPCH_REACH_OTHERS = 0.97
TPCH_REACH_OTHERS_PARALLEL = 0.95
TPCH_MEAN_REACH = 3.0
TPCH_MEAN_REACH_PARALLEL = 2.0

CLICKBENCH_REACH = 0.97
CLICKBENCH_MEAN_REACH = 3.0
