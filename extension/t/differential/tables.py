"""Random tables: every layout a scan can meet.

A table is its list of SQL statements, so that a difference can be printed as a script that anyone can
replay. Nothing in the statements is random to the server.
"""

import random
import re
from dataclasses import dataclass, field

from . import column_types
from .column_types import ColumnType, quoted

ROWS_AN_INSERT = 500
COLUMNS_MAX = 12


@dataclass(frozen=True)
class Column:
    name: str
    type: ColumnType
    extreme_share: float
    null_share: float

    def value_sql(self, rng: random.Random) -> str:
        if rng.random() < self.null_share:
            return "null"
        return quoted(self.type.value(rng, self.extreme_share))


@dataclass
class Table:
    """One generated table, the statements that make it and the columns that queries may name."""
    name: str
    kind: str
    columns: list
    setup: list = field(default_factory=list)
    is_temporary: bool = False

    def declared(self) -> str:
        return ", ".join(f"{column.name} {column.type.sql}"
                         + (" not null" if column.null_share == 0 and column.name != "id" else "")
                         for column in self.columns)

    def insert(self, rng: random.Random, first_id: int, rows: int) -> list:
        """INSERT statements for rows with ids from first_id on."""
        names = ", ".join(column.name for column in self.columns)
        statements = []
        for start in range(first_id, first_id + rows, ROWS_AN_INSERT):
            stop = min(start + ROWS_AN_INSERT, first_id + rows)
            tuples = []
            for identity in range(start, stop):
                values = [str(identity), *(column.value_sql(rng) for column in self.columns[1:])]
                tuples.append(f"({', '.join(values)})")
            statements.append(f"insert into {self.name} ({names}) values\n" + ",\n".join(tuples))
        return statements


def random_columns(rng: random.Random, types=None) -> list:
    """The id and a random choice of columns, extreme values in some of them only."""
    columns = [Column("id", column_types.INT4, 0, 0)]
    for number in range(rng.randint(3, COLUMNS_MAX)):
        known = types or (column_types.KNOWN if rng.random() < 0.9 else column_types.UNUSUAL)
        chosen = rng.choice(known)
        columns.append(Column(f"c{number}_{chosen.name}", chosen,
                              extreme_share=rng.choice((0, 0, 0.002, 0.2)),
                              null_share=rng.choice((0, 0, 0.05, 0.5, 1 if rng.random() < 0.1 else 0))))
    return columns


def row_count(rng: random.Random) -> int:
    return rng.choice((1, 2, 7, 63, 64, 65, 200, 500, 1000, 1500))


def make_table(rng: random.Random, name: str, kind: str) -> Table:
    """A table of one kind; see KINDS."""
    return KINDS[kind](rng, name, kind)


def names_with_rows(table: Table) -> list:
    """The tables that hold a table's rows: itself, its partitions, its children."""
    created = [re.match(r"create (?:\w+ )?table (\S+) .*?(partition by .*)?$", statement) for statement in table.setup]
    return [found.group(1) for found in created if found and not found.group(2)]


def _filled(rng: random.Random, name: str, kind: str, columns=None, rows=None, prefix="") -> Table:
    table = Table(name, kind, columns or random_columns(rng))
    table.setup.append(f"create {prefix}table {name} ({table.declared()})")
    table.setup += table.insert(rng, 1, row_count(rng) if rows is None else rows)
    return table


def _vacuumed(rng, name, kind):
    table = _filled(rng, name, kind)
    table.setup.append(f"vacuum ({rng.choice(('freeze', 'analyze'))}) {name}")
    return table


def _fixed_width(rng, name, kind):
    """No NULL and no varlena: the shape the fastest kernels are made for."""
    columns = [Column("id", column_types.INT4, 0, 0)]
    for number in range(rng.randint(2, 10)):
        chosen = rng.choice(column_types.FIXED_WIDTH)
        columns.append(Column(f"c{number}_{chosen.name}", chosen, rng.choice((0, 0, 0.01)), 0))
    table = _filled(rng, name, kind, columns, rng.choice((500, 1000, 3000)))
    table.setup.append(f"vacuum (analyze) {name}")
    return table


def _seed_shape(rng, name, kind):
    """The benchmark's table: integers on both sides of a text."""
    text = Column("i", column_types.TEXT, 0, 0)
    columns = [Column("id", column_types.INT4, 0, 0)]
    columns += [Column(letter, column_types.INT4, 0, 0) for letter in "abcd"] + [text]
    columns += [Column(letter, column_types.INT4, rng.choice((0, 0.001)), 0) for letter in "jklo"]
    table = _filled(rng, name, kind, columns, rng.choice((300, 2000)))
    table.setup.append(f"vacuum (freeze, analyze) {name}")
    return table


def _churned(rng, name, kind):
    """Dead tuples, HOT chains, aborted inserts and updates, line pointers without storage."""
    table = _filled(rng, name, kind)
    changing = table.columns[-1].name
    steps = [
        [f"delete from {name} where id % {rng.randint(2, 9)} = 0"],
        [f"update {name} set {changing} = {changing} where id % {rng.randint(1, 5)} = 0"],
        ["begin", f"update {name} set {changing} = {changing} where id % 3 = 1",
         f"delete from {name} where id % 4 = 1", "rollback"],
        ["begin", *table.insert(rng, 100_000, rng.choice((1, 50))), "rollback"],
        ["begin", "savepoint s", *table.insert(rng, 200_000, 5), "rollback to s",
         *table.insert(rng, 300_000, 5), "commit"],
        [f"vacuum {name}"],
        table.insert(rng, 400_000, rng.choice((1, 100))),
        [f"begin; select id from {name} where id % 5 = 2 for update; commit"],
    ]
    rng.shuffle(steps)
    for step in steps[:rng.randint(3, len(steps))]:
        table.setup += step
    return table


def _altered(rng, name, kind):
    """Columns dropped and added, with and without defaults, rows before and after each change."""
    table = _filled(rng, name, kind)
    next_id = 10_000
    for change in range(rng.randint(2, 6)):
        action = rng.choice(("drop", "add", "add default", "add volatile default"))
        if action == "drop" and len(table.columns) > 3:
            dropped = table.columns.pop(rng.randint(1, len(table.columns) - 1))
            table.setup.append(f"alter table {name} drop column {dropped.name}")
        else:
            chosen = rng.choice(column_types.KNOWN)
            column = Column(f"n{change}_{chosen.name}", chosen, 0.02, 0.2)
            table.columns.append(column)
            default = f" default {chosen.literal(rng)}" if action == "add default" else ""
            table.setup.append(f"alter table {name} add column {column.name} {chosen.sql}{default}")
        table.setup += table.insert(rng, next_id, rng.choice((0, 1, 40, 300)))
        next_id += 1000
    if rng.random() < 0.6:
        table.setup.append(f"vacuum {name}")
    return table


def _one_row_pages(rng, name, kind):
    columns = random_columns(rng)
    wide = Column("wide", ColumnType("wide", "text", "text", ("w" * 5000, "v" * 6000), ("u" * 7000,)), 0.1, 0)
    columns.insert(rng.randint(1, len(columns)), wide)
    table = Table(name, kind, columns)
    table.setup = [f"create table {name} ({table.declared()})",
                   f"alter table {name} alter column wide set storage plain",
                   *table.insert(rng, 1, rng.choice((3, 30)))]
    if rng.random() < 0.7:
        table.setup.append(f"vacuum {name}")
    return table


def _empty(rng, name, kind):
    table = _filled(rng, name, kind, rows=0)
    if rng.random() < 0.5:
        table.setup += table.insert(rng, 1, 300) + [f"delete from {name}"]
        if rng.random() < 0.5:
            # Something newer at the end keeps vacuum from truncating the emptied pages.
            table.setup += table.insert(rng, 1000, 1) + [f"vacuum {name}"]
    return table


def _toasted(rng, name, kind):
    columns = random_columns(rng)
    for number in range(2):
        columns.insert(rng.randint(1, len(columns)),
                       Column(f"big{number}", rng.choice((column_types.TEXT, column_types.TEXT_C)), 0.5, 0.1))
    table = Table(name, kind, columns)
    table.setup = [f"create table {name} ({table.declared()})",
                   f"alter table {name} alter column big0 set storage "
                   + rng.choice(("extended", "external", "main")),
                   *table.insert(rng, 1, rng.choice((20, 150)))]
    if rng.random() < 0.6:
        table.setup.append(f"vacuum {name}")
    return table


def _partitioned(rng, name, kind):
    """Partitions by hash or range; one was attached with its columns in another order."""
    table = Table(name, kind, random_columns(rng))
    turned = Table(f"{name}_turned", kind, [*reversed(table.columns[1:]), table.columns[0]])
    if rng.random() < 0.5:
        bounds = ["for values with (modulus 3, remainder 0)", "for values with (modulus 3, remainder 1)",
                  "for values with (modulus 3, remainder 2)"]
        method = "hash (id)"
    else:
        bounds = ["for values from (minvalue) to (100)", "for values from (100) to (600)", "default"]
        method = "range (id)"
    table.setup = [f"create table {name} ({table.declared()}) partition by {method}",
                   f"create table {name}_0 partition of {name} {bounds[0]}",
                   f"create table {name}_1 partition of {name} {bounds[1]}",
                   f"create table {turned.name} (gone int, {turned.declared()})",
                   f"alter table {turned.name} drop column gone",
                   f"alter table {name} attach partition {turned.name} {bounds[2]}",
                   *table.insert(rng, 1, rng.choice((10, 300, 1000)))]
    if rng.random() < 0.7:
        table.setup.append(f"vacuum (analyze) {name}")
    return table


def _inherited(rng, name, kind):
    table = _filled(rng, name, kind)
    child = Table(f"{name}_child", kind, [*table.columns, Column("extra", column_types.INT4, 0, 0)])
    table.setup += [f"create table {child.name} (extra int4) inherits ({name})",
                    *child.insert(rng, 5000, rng.choice((0, 30, 400)))]
    if rng.random() < 0.6:
        table.setup.append(f"vacuum {name}, {child.name}")
    return table


def _temporary(rng, name, kind):
    table = _filled(rng, name, kind, prefix="temporary ")
    table.is_temporary = True
    if rng.random() < 0.5:
        table.setup.append(f"vacuum {name}")
    return table


def _unlogged(rng, name, kind):
    """Unlogged, and committed asynchronously, so that no hint bits are set yet."""
    table = _filled(rng, name, kind, prefix="unlogged ")
    table.setup.insert(1, "set synchronous_commit = off")
    table.setup.append("reset synchronous_commit")
    return table


KINDS = {
    "plain": lambda rng, name, kind: _filled(rng, name, kind),
    "vacuumed": _vacuumed, "fixed_width": _fixed_width, "seed_shape": _seed_shape, "churned": _churned,
    "altered": _altered, "one_row_pages": _one_row_pages, "empty": _empty, "toasted": _toasted,
    "partitioned": _partitioned, "inherited": _inherited, "temporary": _temporary, "unlogged": _unlogged,
}


def concurrent_changes(rng: random.Random, tables: list) -> list:
    """Statements of another session that leaves its transaction open while queries run."""
    statements = ["begin"]
    for table in tables:
        if table.is_temporary or rng.random() < 0.4:
            continue
        changing = table.columns[-1].name
        statements += rng.sample([
            f"delete from {table.name} where id % {rng.randint(2, 9)} = 1",
            f"update {table.name} set {changing} = {changing} where id % {rng.randint(2, 9)} = 0",
            *table.insert(rng, 600_000, rng.choice((1, 60))),
            f"select id from {table.name} where id % 3 = 0 for update",
        ], 2)
    return statements
