"""Random scalar expressions and conditions over a table's columns."""

import random

from . import column_types
from .tables import Column, Table

# What may be compared with what without a cast.
COMPARABLE = {"int": ("int", "float", "numeric"), "float": ("int", "float"), "numeric": ("int", "numeric"),
              "date": ("date", "timestamp"), "timestamp": ("timestamp", "date"), "timestamptz": ("timestamptz",),
              "text": ("text",), "textc": ("textc",), "texticu": ("texticu",), "textnocase": ("textnocase",),
              "bpchar": ("bpchar",), "bool": ("bool",), "other": ()}
TEXT_FAMILIES = ("text", "textc", "texticu")
NUMBER_FAMILIES = ("int", "float", "numeric")
VARIANCES = ("var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev")
REGRESSIONS = ("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_intercept", "regr_r2", "regr_slope",
               "regr_sxx", "regr_sxy", "regr_syy")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from")
CONDITION_DEPTH_MAX = 3
NESTING_OFF = -1


class ExpressionMaker:
    """Expressions over the columns of one table, written with an alias.

    With `parameters` (a list) it may write $1, $2, … and notes each one's constant in that list. With
    `keeps_order`, aggregates may show the order of the rows: stock reads them as they are stored.
    `by_row_share` of the aggregates have an argument without a batched form.
    """

    keeps_order = False
    by_row_share = 0.1

    def __init__(self, rng: random.Random, table: Table, alias: str, parameters: list = None):
        self.rng = rng
        self.table = table
        self.alias = alias
        self.parameters = parameters

    def column(self, *families: str) -> Column:
        """A column of one of these families, or None."""
        fitting = [column for column in self.table.columns if not families or column.type.family in families]
        return self.rng.choice(fitting) if fitting else None

    def name(self, column: Column) -> str:
        return f"{self.alias}.{column.name}"

    def constant(self, column: Column) -> str:
        """A constant to compare a column with: mostly a value that is likely to occur in it."""
        literal = column.type.literal(self.rng, max(0.03, column.extreme_share))
        if self.parameters is not None and self.rng.random() < 0.6 and len(self.parameters) < 6:
            self.parameters.append((column.type.plain_sql, literal))
            return f"${len(self.parameters)}"
        return literal

    def number(self, depth: int = 0) -> str:
        """A numeric expression; now and then one that can fail (division, overflow)."""
        column = self.column(*NUMBER_FAMILIES)
        plain = self.name(column)
        draw = self.rng.random()
        if depth >= 2 or draw < 0.35:
            return plain
        if draw < 0.75:
            operator = self.rng.choice("+-*+-*+-*/%" if column.type.family != "float" else "+-*/")
            # The remainder is not defined for floats, which a nested expression may be.
            other = self._operand(depth if operator != "%" else NESTING_OFF, column)
            return f"({plain} {operator} {other})"
        if draw < 0.80:
            return f"(1 - {plain})"
        if draw < 0.84:
            return f"(- {plain})"
        if draw < 0.88:
            return f"abs({plain})"
        if draw < 0.90:
            return f"coalesce({plain}, 0)"
        if draw < 0.91:
            return f"coalesce({plain}, {self.number(depth + 1)})"
        if draw < 0.93:
            return f"(case when {self.simple_condition()} then {plain} else 0 end)"
        if draw < 0.94:
            return (f"(case when {self.simple_condition()} then {self.number(depth + 1)} "
                    f"when {self.simple_condition()} then {plain} end)")
        if draw < 0.96:
            return f"{plain}::{self.rng.choice(('int8', 'float8', 'numeric', 'int4', 'int2', 'float4'))}"
        if draw < 0.98:
            return self._rounded(plain, column)
        return f"({plain} * {self.number(depth + 1)})"

    def _rounded(self, plain: str, column: Column) -> str:
        """A rounding, or one of two equal numbers as NULL."""
        if column.type.family == "int" or self.rng.random() < 0.3:
            return f"nullif({plain}, {self.constant(column)})"
        if column.type.family == "numeric" and self.rng.random() < 0.6:
            return f"{self.rng.choice(('round', 'trunc'))}({plain}, {self.rng.choice((0, 1, 2, 5, -1))})"
        cast = "" if column.type.family == "numeric" else "::float8"
        return f"{self.rng.choice(('round', 'trunc', 'ceil', 'floor'))}({plain}{cast})"

    def _text(self, column: Column) -> str:
        """A text that is made of one."""
        name = self.name(column)
        number = f"{self.name(self.column('int'))}::int4"
        return self.rng.choice((
            "upper({0})", "lower({0})", "{0} || 'x'", "{0} || {0}", "substr({0}, 2, 3)", "substring({0}, 3)",
            "substring({0}, {1} % 5, 2)", "left({0}, 4)", "left({0}, {1})", "md5({0})", "nullif({0}, 'a')",
            "upper(substring({0}, 1, 2))", "(case {0} when 'a' then 'A' when 'ab' then {0} end)")).format(name, number)

    def _moved_date(self, column: Column) -> str:
        """A date or timestamp, and days or an interval."""
        name = self.name(column)
        interval = self.rng.choice(("1 month", "-3 months", "13 months 5 days", "36 hours", "-1 day 00:00:01", "100 years"))
        if column.type.family == "date" and self.rng.random() < 0.5:
            return self.rng.choice((f"({name} + 45)", f"({name} - {self.name(self.column('int'))}::int4)",
                                    f"({name} - '2001-03-31'::date)"))
        return f"({name} {self.rng.choice('+-')} interval '{interval}')"

    def _operand(self, depth: int, column: Column) -> str:
        draw = self.rng.random()
        if draw < 0.4:
            return self.rng.choice(("1", "2", "3", "10", "0.5", "7", "-1"))
        if draw < 0.6:
            return self.constant(column)
        family = ("int", "numeric") if column.type.family == "numeric" else (column.type.family,)
        other = self.column(*family) or column
        return self.name(other) if draw < 0.9 or depth == NESTING_OFF else self.number(depth + 1)

    def scalar(self) -> str:
        """A select-list expression of any type."""
        draw = self.rng.random()
        if draw < 0.65:
            return self.name(self.column())
        if draw < 0.85:
            return self.number()
        text = self.column(*TEXT_FAMILIES)
        if text and draw < 0.92:
            return f"length({self.name(text)})" if self.rng.random() < 0.15 else self._text(text)
        if draw < 0.95:
            return f"({self.condition()})"
        time = self.column("date", "timestamp")
        if time and draw < 0.98:
            return self.date_field(time) if self.rng.random() < 0.5 else self._moved_date(time)
        return f"{self.alias}.id::text"

    def date_field(self, column: Column) -> str:
        """A field of a date or timestamp, or the latter truncated to one; now and then an unknown field."""
        field = self.rng.choice(("year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "hour", "minute",
                                 "second", "century", "epoch"))
        if column.type.family == "date":
            field = self.rng.choice(("year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "decade"))
        elif field not in ("dow", "isodow", "doy", "epoch") and self.rng.random() < 0.5:
            return f"date_trunc('{field}', {self.name(column)})"
        return f"extract({field} from {self.name(column)})"

    def simple_condition(self) -> str:
        """A condition without AND, OR or NOT around it."""
        column = self.column()
        name = self.name(column)
        choices = [self._comparison, self._comparison, self._comparison, self._null_test, self._in_list,
                   self._between, self._column_comparison]
        if column.type.family == "bool":
            return self.rng.choice(("{0}", "not {0}", "{0} is true", "{0} is not true", "{0} is false", "{0} is not false",
                                    "{0} is unknown", "{0} is not unknown", "{0} = true", "{0} <> false",
                                    "{0} is distinct from true")).format(name)
        if column.type.family == "textnocase":
            choices = [self._null_test, self._equality, self._in_list]
        elif column.type.family in (*TEXT_FAMILIES, "bpchar"):
            choices += [self._like, self._like, self._equality, self._text_comparison, self._length_comparison, self._length_comparison]
        elif column.type.family in NUMBER_FAMILIES:
            choices += [self._arithmetic]
        elif column.type.family == "other":
            choices = [self._null_test, self._equality]
        return self.rng.choice(choices)(column)

    def _comparison(self, column: Column) -> str:
        operator = self.rng.choice(("=", "<>", "<", "<=", ">", ">="))
        if self.rng.random() < 0.15:
            return f"{self.constant(column)} {operator} {self.name(column)}"
        if column.type.family == "int" and self.rng.random() < 0.2:
            other = self.rng.choice((column_types.INT2, column_types.INT4, column_types.INT8, column_types.FLOAT8))
            return f"{self.name(column)} {operator} {other.literal(self.rng)}"
        return f"{self.name(column)} {operator} {self.constant(column)}"

    def _equality(self, column: Column) -> str:
        return f"{self.name(column)} {self.rng.choice(('=', '<>', 'is distinct from'))} {self.constant(column)}"

    def _column_comparison(self, column: Column) -> str:
        other = self.column(*COMPARABLE[column.type.family])
        if other is None:
            return self._null_test(column)
        return f"{self.name(column)} {self.rng.choice(('=', '<>', '<', '<=', '>', '>='))} {self.name(other)}"

    def _null_test(self, column: Column) -> str:
        return f"{self.name(column)} is {self.rng.choice(('', 'not '))}null"

    def _in_list(self, column: Column) -> str:
        values = [column.type.literal(self.rng, 0.05) for _ in range(self.rng.choice((1, 2, 3, 3, 12)))]
        if self.rng.random() < 0.1:
            values.append("null")
        return f"{self.name(column)} {self.rng.choice(('', 'not '))}in ({', '.join(values)})"

    def _between(self, column: Column) -> str:
        word = self.rng.choice(("between", "between", "not between", "between symmetric"))
        return f"{self.name(column)} {word} {self.constant(column)} and {self.constant(column)}"

    def _text_comparison(self, column: Column) -> str:
        return f"{self._text(column)} {self.rng.choice(('=', '<>', 'is distinct from', 'is not distinct from'))} {self.constant(column)}"

    def _length_comparison(self, column: Column) -> str:
        """An integer that is made of a text, against a constant that need not be one; now and then only a guard keeps it from failing."""
        name, part = self.name(column), self.rng.choice((1, 2, 3))
        constant = self.rng.choice(("1", "2", "3", "0.5", "1.5", "2.5", "0.55"))
        operator = self.rng.choice(("<>", "is distinct from", *OPERATORS))
        if self.rng.random() < 0.4:
            failing = self.rng.choice((f"length(substring({name}, 1, length({name}) - {part}))", f"10 / (length({name}) - {part})"))
            return f"(length({name}) > {part} and {failing} {operator} {constant})"
        computed = self.rng.choice(("length({0})", "length({0})", "length({0}) * 2", "length(upper({0}))", "length({0}) * 0.5",
                                    "nullif(length({0}), {1})", "coalesce(length({0}), {1})")).format(name, part)
        return f"{computed} {operator} {constant}"

    def _like(self, column: Column) -> str:
        pattern = self.rng.choice(("_", "a_", "%_b", "_%b%", "%a_", "__%", "%\\\\%", "a\\_%", "%\u00e9_", "a%",
                                   "ab%", "abc%", "%", "%b", "a_c%", "", "abcdefgh%", "x\\_%", "50\\%", "\u00e9%",
                                   "zebra", "A%", "%bc%", "%a%b%", "a%b%c", "%%", "%ab%ab%", "a%a", "%\u00e9%",
                                   "%" * 20 + "b"))
        operator = self.rng.choice(("like", "like", "like", "not like", "ilike"))
        return f"{self.name(column)} {operator} {column_types.quoted(pattern)}"

    def _arithmetic(self, column: Column) -> str:
        return f"{self.number()} {self.rng.choice(OPERATORS)} {self.rng.choice(('0', '1', '10', '2.5', '0.55', self.name(column)))}"

    def _unusual(self) -> str:
        """Conditions that no kernel knows: volatile functions, functions, guards, row-wise comparison."""
        number = self.name(self.column("int", "numeric") or self.column("int"))
        choices = [f"random() >= 0", f"({number} <> 0 and 1 / {number} >= 0)", f"({number} = 0 or 10 % {number} < 5)",
                   f"({self.alias}.id, {number}) > (5, 0)", f"num_nulls({number}) = 0",
                   f"{self.alias}.tableoid is not null", f"{self.alias}.ctid is not null",
                   f"{self.alias} is not null", f"{number}::text ~ '1'"]
        text = self.column(*TEXT_FAMILIES)
        if text:
            choices += [f"length({self.name(text)}) > 2", f"upper({self.name(text)}) = 'ABC'",
                        f"{self.name(text)} ~ '^a'"]
        return self.rng.choice(choices)

    def condition(self, depth: int = 0):
        """A condition of any shape."""
        draw = self.rng.random()
        if depth >= CONDITION_DEPTH_MAX or draw < 0.7:
            return self.simple_condition()
        if draw < 0.74:
            return self._unusual()
        if draw < 0.80:
            return f"not ({self.condition(depth + 1)})"
        word = self.rng.choice((" and ", " or ", " or "))
        return "(" + word.join(self.condition(depth + 1) for _ in range(self.rng.choice((2, 2, 3)))) + ")"

    def conditions(self) -> list:
        """The conjuncts of a WHERE clause, from none to four."""
        return [self.condition() for _ in range(self.rng.choice((0, 0, 1, 1, 1, 2, 2, 3, 4)))]

    def aggregate(self, exact_only: bool = False) -> str:
        """An aggregate call. With exact_only its result does not depend on the order of the rows."""
        call = self._call_by_row() if self.rng.random() < self.by_row_share else self._aggregate_call(exact_only)
        draw = self.rng.random()
        if draw < 0.15:
            call += f" filter (where {self.condition(1)})"
        elif draw < 0.15 + self.by_row_share / 3:
            call += f" filter (where md5({self.alias}.id::text) > '{self.rng.choice('28c')}')"
        return call

    def _call_by_row(self) -> str:
        """An aggregate whose argument has no batched form: several of a row are evaluated together."""
        value = self.name(self.column())
        integer = self.name(self.column("int"))
        return self.rng.choice((f"max(md5({value}::text))", f"min(md5({value}::text))", f"count(hashtext({value}::text))",
                                f"sum(hashint8({integer}::int8))", f"sum(hashint8({integer}::int8)::numeric)"))

    def _distinct_call(self) -> str:
        """An aggregate of the different values of an argument, which does not depend on the order of the rows."""
        column = self.rng.choice([column for column in self.table.columns if column.type.name != "jsonb"])
        integer = self.name(self.column("int"))
        return self.rng.choice((f"count(distinct {self.name(column)})", f"count(distinct {integer})",
                                f"count(distinct {integer} % 5)", f"sum(distinct {integer})",
                                f"{self.rng.choice(('avg', 'min', 'max', 'stddev'))}(distinct {integer})"))

    def _aggregate_call(self, exact_only: bool) -> str:
        draw = self.rng.random()
        if draw < 0.2:
            return "count(*)"
        if draw < 0.28:
            return f"count({self.name(self.column())})"
        if draw < 0.33:
            return self._distinct_call()
        if draw < 0.65:
            families = ("int",) if exact_only else NUMBER_FAMILIES
            function = self.rng.choice(("sum", "sum", "avg", self.rng.choice(VARIANCES)))
            if exact_only or self.rng.random() < 0.6:
                return f"{function}({self.name(self.column(*families))})"
            return f"{function}({self.number()})"
        if draw < 0.9:
            column = self.rng.choice([column for column in self.table.columns if column.type.can_minmax
                                      and (column.type.is_exact or not exact_only)])
            return f"{self.rng.choice(('min', 'max'))}({self.name(column)})"
        if draw < 0.92 and not exact_only:
            pair = [self.name(self.column("int", "float", "float")) for _ in "yx"]
            return f"{self.rng.choice(REGRESSIONS)}({', '.join(pair)})"
        if draw < 0.94:
            return f"{self.rng.choice(('bool_and', 'bool_or', 'every'))}({self.simple_condition()})"
        if exact_only:
            return "count(*)"
        number = self.name(self.column(*NUMBER_FAMILIES))
        if self.keeps_order and self.rng.random() < 0.5:
            text = self.column(*TEXT_FAMILIES)
            value = self.name(self.rng.choice([column for column in self.table.columns if column.type.name != "jsonb"]))
            return f"string_agg({self._text(text)}, '; ')" if text and self.rng.random() < 0.5 else f"array_agg({value})"
        return self.rng.choice((f"count(distinct {number})", f"regr_count({number}, {self.alias}.id)",
                                f"bit_and({self.alias}.id)",
                                f"sum(distinct {number})", f"array_agg({number} order by {number})",
                                f"percentile_cont(0.5) within group (order by {self.alias}.id)"))
