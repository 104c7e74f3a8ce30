"""The column types of the generated tables, with values at every edge of each."""

import random
from dataclasses import dataclass

# Large enough to be compressed, and, when random, to be stored out of line.
LONG_TEXT_CHARACTERS = 3000
EXTERNAL_TEXT_CHARACTERS = 9000

NONDETERMINISTIC_COLLATION = "nocase"
COLLATIONS_SETUP = (
    f"create collation {NONDETERMINISTIC_COLLATION} "
    "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "create domain small_positive as int4 check (value is null or value > -100000)",
    "create type mood as enum ('sad', 'ok', 'happy')",
)


@dataclass(frozen=True)
class ColumnType:
    """One type: how SQL names it, what it can do, and its values as unquoted literals.

    `family` decides what may be compared and computed with what; `tame` values cannot overflow in the
    arithmetic that is generated, `extreme` ones can, or are special.
    """
    name: str
    sql: str
    family: str
    tame: tuple
    extreme: tuple
    can_minmax: bool = True
    is_exact: bool = True  # The order of summing, and which of two equal values is kept, cannot show.

    def value(self, rng: random.Random, extreme_share: float) -> str:
        if rng.random() < extreme_share:
            chosen = rng.choice(self.extreme)
        else:
            chosen = rng.choice(self.tame)
        return _external_text(rng) if chosen is EXTERNAL else chosen

    def literal(self, rng: random.Random, extreme_share: float = 0.1) -> str:
        """A typed SQL constant."""
        value = self.value(rng, extreme_share)
        if len(value) > 100:
            value = value[:20]
        return f"{quoted(value)}::{self.plain_sql}"

    @property
    def plain_sql(self) -> str:
        """The type without its collation; a constant takes that of the column it is compared with."""
        return self.sql.split(" collate")[0]


def quoted(value: str) -> str:
    """The value as an SQL string constant."""
    return "'" + value.replace("'", "''") + "'"


EXTERNAL = "\0external"


def _external_text(rng: random.Random) -> str:
    return "".join(rng.choice("0123456789abcdefghijklmnop") for _ in range(EXTERNAL_TEXT_CHARACTERS))


SMALL = tuple(str(number) for number in (*range(-9, 10), 0, 1, 1, 2, 42, 77, 99))
TEXTS = ("", "a", "A", "b", "ab", "abc", "abcd", "abcdef", "abcdefg", "abcdefgh", "Abc", "zebra", "foo bar",
         "x_y", "50%", "back\\slash", "\u00e9t\u00e9", "\u00df", "trailing ", "trailing", "12", "-7")
DATES = ("2000-01-01", "1999-12-31", "2024-02-29", "1970-01-01", "1995-03-15", "2001-09-09", "2000-01-02")
TIMES = ("2000-01-01 00:00:00", "1999-12-31 23:59:59.999999", "2024-02-29 12:00:00", "1970-01-01 00:00:00",
         "2001-09-09 01:46:40.5", "2000-01-01 00:00:00.000001")

INT2 = ColumnType("int2", "int2", "int", SMALL, ("32767", "-32768", "0"))
INT4 = ColumnType("int4", "int4", "int", SMALL + ("1000", "-1000", "12345"), ("2147483647", "-2147483648", "0"))
INT8 = ColumnType("int8", "int8", "int", SMALL + ("100000", "5000000000"),
                  ("9223372036854775807", "-9223372036854775808", "0"))
FLOAT4 = ColumnType("float4", "float4", "float", SMALL + ("0.5", "1.1", "-2.25", "1e10", "3.14159"),
                    ("NaN", "Infinity", "-Infinity", "-0", "3.4e38", "1e-40", "16777217"), is_exact=False)
FLOAT8 = ColumnType("float8", "float8", "float", SMALL + ("0.5", "0.1", "0.2", "-2.25", "1e15", "3.14159265358979"),
                    ("NaN", "Infinity", "-Infinity", "-0", "1.7e308", "-1.7e308", "1e-320", "9007199254740993"),
                    is_exact=False)
NUMERIC = ColumnType("numeric", "numeric", "numeric",
                     SMALL + ("0.10", "1.0", "1.00", "1.000", "-2.5", "123456.789", "0.000001", "99999999.99"),
                     ("NaN", "Infinity", "-Infinity", "9" * 60, "-" + "9" * 40 + ".5", "0." + "0" * 50 + "1",
                      "1e100", "12345678901234567890.123456789"), is_exact=False)
MONEY_LIKE = ColumnType("numeric152", "numeric(15,2)", "numeric",
                        ("0.00", "0.01", "-0.01", "1.00", "17.50", "901.00", "24710.35", "-100.10", "0.05", "0.07"),
                        ("9999999999999.99", "-9999999999999.99", "NaN"))
DATE = ColumnType("date", "date", "date", DATES, ("infinity", "-infinity", "4713-01-01 BC", "5874897-12-31"))
TIMESTAMP = ColumnType("timestamp", "timestamp", "timestamp", TIMES,
                       ("infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"))
TIMESTAMPTZ = ColumnType("timestamptz", "timestamptz", "timestamptz", tuple(time + "+00" for time in TIMES),
                         ("infinity", "-infinity", "294276-12-31 23:59:59.999999+00"))
BOOL = ColumnType("bool", "bool", "bool", ("true", "false"), ("true", "false"), can_minmax=False)
TEXT = ColumnType("text", "text", "text", TEXTS, ("z" * LONG_TEXT_CHARACTERS, "y" * 200, "", EXTERNAL))
TEXT_C = ColumnType("textc", 'text collate "C"', "textc", TEXTS, ("z" * LONG_TEXT_CHARACTERS, "\u00ff", EXTERNAL))
TEXT_ICU = ColumnType("texticu", 'text collate "en-x-icu"', "texticu", TEXTS, ("y" * 200, ""))
TEXT_NOCASE = ColumnType("textnocase", f"text collate {NONDETERMINISTIC_COLLATION}", "textnocase", TEXTS,
                         ("ABC", "abC"), can_minmax=False, is_exact=False)
VARCHAR = ColumnType("varchar", "varchar(12)", "text", tuple(text[:12] for text in TEXTS), ("", "z" * 12))
BPCHAR = ColumnType("bpchar", "char(6)", "bpchar", tuple(text.rstrip()[:6] for text in TEXTS), ("", "z" * 6),
                    is_exact=False)
CHAR1 = ColumnType("char1", "char(1)", "bpchar", ("A", "N", "R", "O", "F"), ("", " "))

# Types that are only carried along: no kernel knows them, yet a scan must pass them through.
INTERVAL = ColumnType("interval", "interval", "other", ("1 day", "24 hours", "1 mon", "-3 secs", "0"),
                      ("178000000 years",), is_exact=False)
UUID = ColumnType("uuid", "uuid", "other", ("00000000-0000-0000-0000-000000000000",
                                           "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
                  ("ffffffff-ffff-ffff-ffff-ffffffffffff",), can_minmax=False)
BYTEA = ColumnType("bytea", "bytea", "other", ("\\x", "\\x00ff", "\\xdeadbeef"), ("\\x" + "ab" * 3000,),
                   can_minmax=False)
ARRAY = ColumnType("intarray", "int4[]", "other", ("{}", "{1,2,3}", "{NULL,0}"), ("{2147483647}",))
JSONB = ColumnType("jsonb", "jsonb", "other", ("{}", '{"a": 1}', "[1, 2]", "null"), ('{"a": "b"}',),
                   can_minmax=False)
DOMAIN = ColumnType("domain", "small_positive", "int", SMALL, ("2147483647", "-9999"))
ENUM = ColumnType("mood", "mood", "other", ("sad", "ok", "happy"), ("ok",))

KNOWN = (INT2, INT4, INT4, INT8, FLOAT4, FLOAT8, NUMERIC, MONEY_LIKE, MONEY_LIKE, DATE, TIMESTAMP, TIMESTAMPTZ,
         BOOL, TEXT, TEXT_C, VARCHAR, BPCHAR, CHAR1)
UNUSUAL = (TEXT_ICU, TEXT_NOCASE, INTERVAL, UUID, BYTEA, ARRAY, JSONB, DOMAIN, ENUM)
FIXED_WIDTH = (INT2, INT4, INT8, FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, BOOL)
