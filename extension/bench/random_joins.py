"""Random joins of two to six of TPC-H's tables along their keys, for the check of the planner's choice."""

import random

SCALE_FACTOR = 0.02
INDEXES = ("orders (o_custkey)", "lineitem (l_partkey, l_suppkey)", "lineitem (l_suppkey)", "partsupp (ps_suppkey)")

JOINS = (
    ("lineitem", "orders", "l_orderkey = o_orderkey"),
    ("orders", "customer", "o_custkey = c_custkey"),
    ("supplier", "nation", "s_nationkey = n_nationkey"),
    ("nation", "region", "n_regionkey = r_regionkey"),
    ("lineitem", "part", "l_partkey = p_partkey"),
    ("lineitem", "supplier", "l_suppkey = s_suppkey"),
    ("lineitem", "partsupp", "l_partkey = ps_partkey and l_suppkey = ps_suppkey"),
    ("partsupp", "part", "ps_partkey = p_partkey"),
    ("partsupp", "supplier", "ps_suppkey = s_suppkey"),
)

# Of each table: a key, the largest value of it at scale factor 1, and another column of numbers with some values of it.
COLUMNS = {
    "lineitem": ("l_orderkey", 6_000_000, "l_quantity", (2, 10, 40)),
    "orders": ("o_orderkey", 6_000_000, "o_totalprice", (2_000, 50_000, 300_000)),
    "customer": ("c_custkey", 150_000, "c_acctbal", (-900, 0, 5_000)),
    "supplier": ("s_suppkey", 10_000, "s_acctbal", (-900, 0, 5_000)),
    "part": ("p_partkey", 200_000, "p_size", (2, 10, 40)),
    "partsupp": ("ps_partkey", 200_000, "ps_availqty", (100, 1_000, 8_000)),
    "nation": ("n_nationkey", None, "n_regionkey", (1, 2, 3)),
    "region": ("r_regionkey", None, "r_regionkey", (1, 2, 3)),
}


def join_condition(rng: random.Random, joined: list) -> tuple:
    """A table that is not joined yet, and how it joins one that is; or None."""
    found = [(other, condition) for one, two, condition in JOINS for table, other in ((one, two), (two, one))
             if table in joined and other not in joined]
    return rng.choice(found) if found else None


def filter_of(rng: random.Random, table: str) -> str:
    """A condition on a range of the key or on the other column; often none."""
    key, largest, value, bounds = COLUMNS[table]
    kind = rng.random()
    if kind < 0.2 and largest is not None:
        largest = int(largest * SCALE_FACTOR)
        length = int(largest * rng.choice((0.01, 0.1, 0.5)))
        start = rng.choice((0, rng.randrange(largest - length)))
        return f"{key} between {start} and {start + length}"
    if kind < 0.4:
        return f"{value} < {rng.choice(bounds)}"
    return ""


def random_join(rng: random.Random) -> str:
    """A query: an aggregate over all rows, one for each key, the keys alone, or rows, some of them in an order."""
    tables = [rng.choice(list(COLUMNS))]
    source = tables[0]
    for _ in range(rng.randint(1, 5)):
        found = join_condition(rng, tables)
        if found is None:
            break
        table, condition = found
        source += f" {rng.choices(('join', 'left join'), (5, 1))[0]} {table} on {condition}"
        tables.append(table)
    filters = [condition for table in tables if (condition := filter_of(rng, table))]
    where = f" where {' and '.join(filters)}" if filters else ""
    key = COLUMNS[rng.choice(tables)][0]
    value = COLUMNS[rng.choice(tables)][2]
    form = rng.choice(("select count(*), sum({value}) from {source}",
                       "select {key}, count(*), max({value}) from {source} group by {key}",
                       "select {key}, sum({value}) from {source} group by {key} order by {key}",
                       "select distinct {key} from {source}",
                       "select {key}, {value} from {source} order by {key}, {value}",
                       "select {key}, {value} from {source} order by {value} limit 20"))
    return form.format(key=key, value=value, source=source + where)
