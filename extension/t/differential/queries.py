"""Random queries: small syntax trees that can be written as SQL and shrunk piece by piece."""

import copy
import random
from dataclasses import dataclass, field

from .expressions import ExpressionMaker
from .tables import Table


@dataclass
class Query:
    """A select over `source`, with its clauses as lists so that any piece can be left out.

    `is_ordered`: stock's row order is part of the answer (no hashing anywhere, no parallel workers).
    `sorted_columns`: so many columns at the front have one order; that of rows with equal ones is by chance.
    `frame` wraps the select: `{q}` stands for it; one statement a line of the list.
    `probe` is the statement whose plan tells whether the query was batched.
    """
    source: str
    targets: list
    conditions: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    grouping: str = "{keys}"
    having: list = field(default_factory=list)
    order: list = field(default_factory=list)
    limit: str = ""
    is_ordered: bool = True
    frame: list = field(default_factory=lambda: ["{q}"])
    probe: str = "{q}"
    tables: list = field(default_factory=list)
    distinct: bool = False
    sorted_columns: int = 0

    def select(self) -> str:
        parts = ["select " + ("distinct " if self.distinct else "") + ", ".join([*self.keys, *self.targets]),
                 f"from {self.source}"]
        if self.conditions:
            parts.append("where " + " and ".join(self.conditions))
        if self.keys:
            parts.append("group by " + self.grouping.format(keys=", ".join(self.keys)))
        if self.having:
            parts.append("having " + " and ".join(self.having))
        if self.order:
            parts.append("order by " + ", ".join(self.order))
        if self.limit:
            parts.append(self.limit)
        return " ".join(parts)

    def statements(self) -> list:
        select = self.select()
        return [line.replace("{q}", select) for line in self.frame]

    def explained(self) -> str:
        return self.probe.replace("{q}", self.select())

    def smaller(self):
        """Every query that has one piece less than this one."""
        for clause in ("targets", "conditions", "keys", "having", "order"):
            pieces = getattr(self, clause)
            needed = 1 if clause == "targets" or (clause == "keys" and self.keys) else 0
            if len(pieces) <= needed or (self.sorted_columns and clause in ("keys", "order")):
                continue
            for gone in range(self.sorted_columns if clause == "targets" and not self.keys else 0, len(pieces)):
                less = copy.deepcopy(self)
                del getattr(less, clause)[gone]
                yield less
        if self.limit:
            less = copy.deepcopy(self)
            less.limit = ""
            yield less
        if self.frame != ["{q}"] and not any("$" in piece for piece in (*self.conditions, *self.targets)):
            less = copy.deepcopy(self)
            less.frame, less.probe = ["{q}"], "{q}"
            yield less


class QueryMaker:
    """Makes queries over a round's tables."""

    def __init__(self, rng: random.Random, tables: list, is_parallel: bool = False, may_write: bool = True,
                 joins_only: bool = False, may_sample: bool = True):
        self.rng = rng
        self.tables = tables
        self.is_parallel = is_parallel
        self.may_write = may_write
        self.joins_only = joins_only
        self.may_sample = may_sample
        self.names = 0

    def make(self) -> Query:
        shapes = [(self.scan, 22), (self.limited, 8), (self.aggregate, 26), (self.grouped, 22), (self.joined, 14),
                  (self.nested, 7), (self.prepared, 6), (self.cursor, 3), (self.stacked, 4), (self.unbatchable, 3),
                  (self.guarded, 3), (self.united, 6), (self.topmost, 6), (self.gathered, 10), (self.sorted, 12)]
        if self.joins_only:
            shapes = [(self.joined, 1)]
        elif self.is_parallel:
            # Only what has one answer, however the workers share the rows.
            shapes = [(self.aggregate, 40), (self.grouped, 40), (self.scan, 20), (self.united, 15), (self.gathered, 10), (self.sorted, 15)]
        elif self.may_write:
            shapes.append((self.writing, 3))
        makers, weights = zip(*shapes)
        query = self.rng.choices(makers, weights)[0]()
        if self.is_parallel:
            query.is_ordered = False
        return query

    def _over(self, table: Table = None, alias: str = "t", parameters: list = None):
        table = table or self.rng.choice(self.tables)
        return table, ExpressionMaker(self.rng, table, alias, parameters)

    def _fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def _by_row_share(self) -> float:
        """The share of a query's aggregates whose arguments have no batched form: some queries have several."""
        return self.rng.choice((0.05, 0.05, 0.05, 0.6))

    def _few_of_each_page(self) -> list:
        """Now and then, a condition that leaves few rows of many pages: those of several are taken together."""
        if self.rng.random() < 0.75:
            return []
        ids = sorted(self.rng.sample(range(1, 1500), self.rng.choice((6, 25, 70))))
        return [f"t.id in ({', '.join(map(str, ids))})"]

    def scan(self, parameters: list = None) -> Query:
        table, make = self._over(parameters=parameters)
        targets = ["t.*"] if self.rng.random() < 0.2 else [make.scalar() for _ in range(self.rng.randint(1, 5))]
        return Query(f"{table.name} t", targets, make.conditions(), tables=[table])

    def limited(self) -> Query:
        query = self.scan()
        query.limit = f"limit {self.rng.choice((0, 1, 1, 2, 5, 17, 100))}"
        if self.rng.random() < 0.3:
            query.limit += f" offset {self.rng.choice((1, 3, 70))}"
        return query

    def topmost(self) -> Query:
        """The first rows of an order; which ones of equal rows shows, too."""
        table, make = self._over()
        query = Query(f"{table.name} t", ["t.*"] if self.rng.random() < 0.3 else ["t.id", make.name(make.column())],
                      make.conditions(), tables=[table])
        keys = [make.name(make.column("int", "float", "date", "timestamp")), make.name(make.column("int", "float", "numeric")), "t.id"]
        query.order = [key + self.rng.choice(("", " desc", " nulls first", " desc nulls last"))
                       for key in keys[:self.rng.choice((1, 1, 2, 3))]]
        query.limit = f"limit {self.rng.choice((0, 1, 1, 2, 5, 17, 100))}"
        if self.rng.random() < 0.3:
            query.limit += f" offset {self.rng.choice((1, 3, 70))}"
        return query

    def sorted(self) -> Query:
        """All rows in an order, of a table or of a join; or what groups or window functions make of them."""
        table, make = self._over()
        source, taken = f"{table.name} t", [table]
        if self.rng.random() < 0.2:
            other = self.rng.choice(self.tables)
            source += f" join {other.name} u on u.id = t.id % 40"
            taken.append(other)
        families = (("int",), ("text",), ("float",), ("numeric",), ("date", "timestamp"), ())
        columns = [make.column(*self.rng.choice(families)) for _ in range(self.rng.choice((1, 1, 2, 2, 3)))]
        columns = [column for column in columns if column is not None and column.type.name != "jsonb"]
        # Of equal values that look different, any may come first.
        keys = list(dict.fromkeys([make.name(column) for column in columns if column.type.is_exact] or ["t.id"]))
        loose = dict.fromkeys(make.name(column) for column in columns if not column.type.is_exact)
        order = [key + self.rng.choice(("", "", " desc", " nulls first", " desc nulls last")) for key in (*keys, *loose)]
        draw = self.rng.random()
        if draw < 0.15:
            window = f"partition by {keys[0]} order by {', '.join(order[1:] or ['t.id'])}"
            targets = [*keys, "t.id", f"rank() over ({window})", f"count(*) over (partition by {keys[0]})",
                       f"sum(t.id) over ({window})", f"dense_rank() over ({window})"]
            return Query(source, targets, make.conditions(), is_ordered=False, tables=taken)
        if draw < 0.3:
            return Query(source, ["count(*)", "max(t.id)"], make.conditions(), keys, order=order[:len(keys)],
                         is_ordered=False, tables=taken, sorted_columns=len(keys))
        more = [make.name(make.column()) for _ in range(self.rng.choice((0, 1, 3)))]
        return Query(source, [*keys, "t.id", *more], make.conditions(), order=order, is_ordered=False, tables=taken,
                     sorted_columns=len(keys))

    def aggregate(self, parameters: list = None) -> Query:
        table, make = self._over(parameters=parameters)
        make.keeps_order = True
        make.by_row_share = self._by_row_share()
        targets = [make.aggregate(self.is_parallel) for _ in range(self.rng.randint(1, 5))]
        query = Query(f"{table.name} t", targets, make.conditions(), tables=[table])
        if self.rng.random() < 0.1:
            query.targets.append("count(*) * 2 + 1")
        if self.rng.random() < 0.05:
            query.having = ["count(*) > 3"]
        return query

    def grouped(self) -> Query:
        table, make = self._over()
        make.by_row_share = self._by_row_share()
        keys = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            column = make.column()
            if column.type.name in ("jsonb",) or (self.is_parallel and not column.type.is_exact):
                column = make.column("int")
            keys.append(make.name(column))
        if self.rng.random() < 0.1:
            keys.append("(" + make.number() + ")" if not self.is_parallel else "(t.id % 3)")
        keys = list(dict.fromkeys(keys))
        query = Query(f"{table.name} t", [make.aggregate(self.is_parallel) for _ in range(self.rng.randint(1, 4))],
                      [*self._few_of_each_page(), *make.conditions()], keys, is_ordered=False, tables=[table])
        if self.rng.random() < 0.2:
            query.having = [self.rng.choice(("count(*) > 1", "min(t.id) > 2", "sum(t.id) % 2 = 0",
                                             "avg(t.id) > 10", "count(*) between 1 and 5"))]
        if self.rng.random() < 0.15:
            query.grouping = self.rng.choice(("rollup ({keys})", "cube ({keys})", "grouping sets (({keys}), ())",
                                              "grouping sets ((), ({keys}), ())"))
            query.targets += [f"grouping({', '.join(keys)})"] if self.rng.random() < 0.5 else []
        if self.rng.random() < 0.1:
            query.order = [str(position + 1) for position in range(len(keys))]
        return query

    def gathered(self) -> Query:
        """An aggregate over rows that do not come right from a table, or over a join of such rows."""
        # A merge join takes rows from a sort: then only what has one answer, however rows of equal keys follow each other.
        is_joined = self.rng.random() < 0.5 and not self.is_parallel
        was_parallel, self.is_parallel = self.is_parallel, self.is_parallel or is_joined
        query = self.rng.choice((self.aggregate, self.grouped))()
        self.is_parallel = was_parallel
        name = query.tables[0].name
        # Conditions may ask for a system column, which a subquery has to return by name.
        rows = f"select *, tableoid, ctid from {name} "
        source = self.rng.choice((f"{rows} offset 0", f"{rows} order by id offset 2", f"{rows} union all {rows} where id % 3 = 0 offset 0",
                                  f"select *, tableoid, ctid, count(*) over () from {name} "))
        query.source = f"({source}) t"
        if is_joined:
            other = self.rng.choice((f"generate_series(-4, {self.rng.choice((5, 3000))}) g on g {self.rng.choice(('=', '<'))} t.id % 9",
                                     f"{name} u on u.id = t.id + 1", f"{name} u on u.id = t.id and u.id % 3 = 0",
                                     f"(select id % 9 as k, count(*) from {name} group by 1) u on u.k = t.id % 11"))
            query.source += f" {self.rng.choice(('join', 'join', 'left join'))} {other}"
        return query

    def guarded(self) -> Query:
        """A condition that keeps an expression from failing, and now and then one that does not."""
        table, make = self._over()
        divisor = make.name(make.column("int", "numeric"))
        guard = self.rng.choice((f"{divisor} <> 0", f"{divisor} > 0", f"{divisor} <> 1", f"not ({divisor} = 0)",
                                 f"{divisor} in (1, 2, 3)", f"{divisor} is not null"))
        failing = f"100 / {divisor}"
        draw = self.rng.randrange(5)
        if draw == 0:
            return Query(f"{table.name} t", [f"sum({failing})", "count(*)"], [guard], tables=[table])
        if draw == 1:
            return Query(f"{table.name} t", [f"max({failing}) filter (where {guard})"], make.conditions()[:1],
                         tables=[table])
        if draw == 2:
            return Query(f"{table.name} t", ["t.id", failing], [guard], tables=[table],
                         limit=self.rng.choice(("", "limit 1", "limit 3", "limit 20")))
        if draw == 3:
            return Query(f"{table.name} t", ["count(*)"], [guard, f"{failing} > 3"], tables=[table])
        return Query(f"{table.name} t", ["count(*)"], [f"(case when {guard} then {failing} else 1 end) > 0"],
                     tables=[table])

    def united(self) -> Query:
        """Aggregates over the parts of a UNION ALL: one node reads all of their tables."""
        parts = []
        taken = []
        for alias in ("t", "u", "v")[:self.rng.choice((2, 2, 3))]:
            table, make = self._over(alias=alias)
            value = make.name(make.column("int"))
            value = self.rng.choice((value, value, f"({value} % 5)", "7", "null::int4"))
            condition = f" where {make.condition()}" if self.rng.random() < 0.5 else ""
            parts.append(f"select {value} as x, {alias}.id as y, {make.name(make.column())} is null as z "
                         f"from {table.name} {alias}{condition}")
            taken.append(table)
        targets = self.rng.sample(["count(*)", "sum(q.x)", "avg(q.y)", "min(q.x)", "max(q.y)", "count(q.x)",
                                   "bool_or(q.z)", "sum(q.y) filter (where q.x > 2)", "sum(q.x + q.y)"], 4)
        keys = self.rng.choice(([], ["q.x"], ["q.z"], ["q.x", "q.z"], ["(q.y % 7)"]))
        return Query(f"({' union all '.join(parts)}) q", targets, self.rng.choice(([], [], ["q.y > 20"])), keys,
                     is_ordered=False, tables=taken)

    def joined(self) -> Query:
        left, make_left = self._over(alias="t")
        right, make_right = self._over(alias="u")
        kind = self.rng.choice(("join", "left join", "join", "join", "right join", "full join", "semi", "anti", "in"))
        on = " and ".join(self._join_keys(make_left, make_right))
        conditions = [*self._few_of_each_page(), *([make_left.condition()] if self.rng.random() < 0.5 else [])]
        taken = [left, right]
        if kind in ("semi", "anti"):
            word = "exists" if kind == "semi" else "not exists"
            more = f" and {make_right.condition()}" if self.rng.random() < 0.5 else ""
            conditions.append(f"{word} (select 1 from {right.name} u where {on}{more})")
            source = f"{left.name} t"
            targets = [make_left.scalar() for _ in range(3)]
        elif kind == "in":
            column, other = self._alike(make_left, make_right)
            conditions.append(f"{column} in (select {other} from {right.name} u)")
            source = f"{left.name} t"
            targets = [make_left.scalar() for _ in range(3)]
        else:
            sides, markers = zip(self._side(left, "t"), self._side(right, "u"))
            source = f"{sides[0]} {kind} {sides[1]} on {on}"
            if kind != "full join" and self.rng.random() < 0.4:
                source += f" and {make_right.condition()}"
            targets = [make_left.scalar(), make_right.scalar(), "t.id", "u.id", *sum(markers, [])]
            if kind == "join" and self.rng.random() < 0.3:
                third, make_third = self._over(alias="v")
                taken.append(third)
                source += f" {self.rng.choice(('join', 'left join'))} {third.name} v on " + \
                    " and ".join(self._join_keys(self.rng.choice((make_left, make_right)), make_third))
                targets.append("v.id")
        query = Query(source, targets, conditions, is_ordered=False, tables=taken)
        draw = self.rng.random()
        is_pair = kind not in ("semi", "anti", "in")
        if draw < 0.35:
            query.targets = [make_left.aggregate(True), (make_right if is_pair else make_left).aggregate(True)]
        elif draw < 0.6:
            query.targets = ["count(*)", (make_right if is_pair else make_left).aggregate(True)]
            makers = (make_left, make_right) if is_pair else (make_left,)
            query.keys = [maker.name(maker.column("int")) for maker in self.rng.sample(makers, 1)]
        return query

    def _side(self, table, alias: str) -> tuple:
        """A side of a join, sometimes with a constant column, and the targets that it adds."""
        if self.rng.random() < 0.75:
            return f"{table.name} {alias}", []
        # Conditions may ask for a system column, which a subquery has to return by name.
        side = f"(select 42 as marker, *, tableoid, ctid from {table.name}) {alias}"
        return side, [f"{alias}.marker", f"count({alias}.marker) over ()"]

    def _alike(self, make_left, make_right) -> tuple:
        """A column of each side, of comparable types."""
        kind = self.rng.choice(("id", "int", "numeric", "float", "text", "any"))
        if kind == "id":
            return make_left.name(make_left.column("int")), f"{make_right.alias}.id"
        if kind == "any":
            left = make_left.column()
            alike = [column for column in make_right.table.columns if column.type.sql == left.type.sql]
            if left.type.name != "jsonb" and alike:
                return make_left.name(left), make_right.name(self.rng.choice(alike))
            kind = "int"
        left, right = make_left.column(kind), make_right.column(kind)
        if left is None or right is None:
            left, right = make_left.column("int"), make_right.column("int")
        return make_left.name(left), make_right.name(right)

    def _join_keys(self, make_left, make_right) -> list:
        """Conditions of a join: mostly by id, so that a row has few matches."""
        by_id = f"{make_left.alias}.id = {make_right.alias}.id"
        draw = self.rng.random()
        if draw < 0.4:
            return [by_id]
        left, right = self._alike(make_left, make_right)
        if draw < 0.7:
            # Rows of one id modulo, so that duplicates stay few.
            return [f"{left} = {right}", f"{make_left.alias}.id % 50 = {make_right.alias}.id % 50"]
        if draw < 0.85:
            return [by_id, f"{left} = {right}"]
        return [f"{make_left.alias}.id = {make_right.alias}.id % {self.rng.choice((3, 40, 500))}"]

    def nested(self) -> Query:
        table, make = self._over()
        inner, make_inner = self._over(alias="u")
        key = make_inner.name(make_inner.column("int"))
        draw = self.rng.randrange(6)
        if draw == 0:
            source = (f"(select {key} as k, count(*) as n, sum(u.id) as s from {inner.name} u "
                      f"where {make_inner.condition()} group by 1) q")
            return Query(source, ["count(*)", "sum(q.n)", "max(q.s)", "min(q.k)"], tables=[inner], is_ordered=False)
        if draw == 1:
            condition = f"t.id in (select u.id from {inner.name} u where {make_inner.condition()})"
            return Query(f"{table.name} t", [make.scalar(), "t.id"], [condition], is_ordered=False,
                         tables=[table, inner])
        if draw == 2:  # A correlated subquery: the inner scan is rescanned with a new PARAM_EXEC value.
            target = f"(select {make_inner.aggregate()} from {inner.name} u where u.id < t.id + 3)"
            return Query(f"{table.name} t", ["t.id", target], ["t.id < 12", *make.conditions()[:1]],
                         tables=[table, inner])
        if draw == 3:  # An InitPlan's value as the constant of a condition.
            condition = f"t.id > (select {self.rng.choice(('avg', 'min', 'max'))}(u.id) from {inner.name} u)"
            return Query(f"{table.name} t", [make.aggregate()], [condition, *make.conditions()[:1]],
                         tables=[table, inner])
        if draw == 4:
            source = (f"{table.name} t, lateral (select count(*) as n, max(u.id) as m from {inner.name} u "
                      f"where u.id <= t.id and {make_inner.condition()}) q")
            return Query(source, ["t.id", "q.n", "q.m"], ["t.id < 10"], tables=[table, inner])
        condition = f"t.id = any (select u.id from {inner.name} u limit 5)"
        return Query(f"{table.name} t", [make.aggregate()], [condition], tables=[table, inner])

    def prepared(self) -> Query:
        """A statement prepared once and executed with a generic and with custom plans."""
        parameters = []
        query = self.aggregate(parameters) if self.rng.random() < 0.5 else self.scan(parameters)
        if not parameters:
            query.conditions.append("t.id > $1")
            parameters.append(("int4", "5"))
        name = self._fresh("statement")
        types = ", ".join(kind for kind, _ in parameters)
        nulls = ", ".join("null" for _ in parameters)
        values = ", ".join(value for _, value in parameters)
        mode = self.rng.choice(("force_generic_plan", "force_custom_plan", "auto"))
        # Switched off after it was planned, and on again: a cached plan has to follow the setting.
        off, on = (["set batchexec.enabled = off"], ["reset batchexec.enabled"]) if self.rng.random() < 0.3 else ([], [])
        query.frame = [f"set plan_cache_mode = {mode}", f"prepare {name} ({types}) as {{q}}",
                       f"execute {name} ({values})", *off, f"execute {name} ({nulls})", *on, f"execute {name} ({values})",
                       f"deallocate {name}", "reset plan_cache_mode"]
        query.probe = f"execute {name} ({values})"
        return query

    def cursor(self) -> Query:
        query = self.scan()
        name = self._fresh("cursor")
        kind = self.rng.choice(("", "no scroll ", "scroll ", "")) + "cursor"
        steps = [f"fetch {self.rng.choice((1, 3, 50))} from {name}"]
        if self.may_write and not query.tables[0].is_temporary and self.rng.random() < 0.5:
            # What happens after DECLARE must not be seen by the cursor.
            changing = query.tables[0].columns[-1].name
            steps.append(f"update {query.tables[0].name} set {changing} = {changing} where id % 2 = 0")
            steps += ["savepoint s", f"delete from {query.tables[0].name} where id % 3 = 0", "rollback to s"]
        steps.append(f"fetch {self.rng.choice((1, 10))} from {name}")
        if kind == "scroll cursor":
            steps += [f"fetch backward 2 from {name}", f"move first from {name}", f"fetch 2 from {name}"]
        steps.append(f"fetch all from {name}")
        query.frame = ["begin", f"declare {name} {kind} for {{q}}", *steps, "rollback"]
        return query

    def stacked(self) -> Query:
        """Nodes above a batched scan: sort, distinct, window, union, CTE."""
        query = self.scan()
        table = query.tables[0]
        make = ExpressionMaker(self.rng, table, "t")
        draw = self.rng.randrange(5)
        if draw == 0:
            query.order = ["t.id desc"]
            query.limit = "limit 7"
        elif draw == 1:
            query.targets = ["t.id", f"row_number() over (order by t.id)", f"sum(t.id) over (order by t.id)"]
        elif draw == 2:
            query.frame = ["({q}) union all ({q})"]
            query.probe = query.frame[0]
        elif draw == 3:
            query.frame = ["with w as materialized ({q}) select count(*) from w"]
            query.probe = query.frame[0]
        else:
            query.targets, query.distinct, query.is_ordered = [make.name(make.column("int"))], True, False
        return query

    def unbatchable(self) -> Query:
        """What has to be left to stock: locks, system columns, whole rows, samples, SERIALIZABLE."""
        query = self.scan()
        draw = self.rng.randrange(6)
        if draw == 0 and self.may_write:
            query.limit = self.rng.choice(("for update", "for share skip locked"))
        elif draw == 1:
            query.targets = ["t.ctid", "t.tableoid::regclass"]
        elif draw == 2:
            query.targets = ["t"]
        elif draw == 3 and self.may_sample:
            query.source += " tablesample system (50) repeatable (7)"
        elif draw == 4:
            query.frame = ["begin isolation level serializable", "{q}", "commit"]
        else:
            query.frame = ["begin", "declare c scroll cursor with hold for {q}", "commit", "fetch 3 from c",
                           "fetch backward 2 from c", "close c"]
        return query

    def writing(self) -> Query:
        """Data changes that read through a scan, rolled back; own changes seen by later statements."""
        table, make = self._over(self.rng.choice([table for table in self.tables]))
        query = Query(f"{table.name} t", [make.aggregate(True), "count(*)"], make.conditions(), tables=[table])
        condition = " and ".join(make.conditions() or ["true"])
        changing = table.columns[-1].name
        change = self.rng.choice((
            f"update {table.name} t set {changing} = t.{changing} where {condition}",
            f"delete from {table.name} t where {condition}",
            f"update {table.name} t set id = t.id + 1 where {condition} returning t.id",
            f"insert into {table.name} select t.* from {table.name} t where {condition}"))
        query.frame = ["begin", change, "{q}", "savepoint s", f"delete from {table.name} where id % 2 = 0", "{q}",
                       "rollback to s", "{q}", "rollback"]
        return query
