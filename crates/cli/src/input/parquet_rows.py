# Writes the rows of a Parquet file as JSON lines, from the physical values of its columns: what a row becomes depends neither
# on whether pandas is installed nor on Python's types of dates. docs/scripts.md has the table. A row that has no JSON is a line
# that begins with the mark, and says why. Python 3.8 and newer, pyarrow 12 and newer.
import base64
import json
import sys

try:
    import pyarrow
    import pyarrow.parquet
    import pyarrow.types as types
except ImportError:
    sys.exit(78)

REFUSED = "\x01"
ROWS = 1000
PER_S = {"s": 1, "ms": 1000, "us": 1000000, "ns": 1000000000}
DAY_S = 86400
# What nanoseconds of 64 bits hold, in microseconds.
NS_IN_US_MAX = (1 << 63) // 1000


class Refused:
    """A value that JSON does not have."""

    def __init__(self, reason):
        self.reason = reason


class RefusedRow(Exception):
    pass


def refuse(value):
    raise RefusedRow(value.reason)


# --- texts of moments and spans ---


def fraction(ticks, per_s):
    """The digits after the second: none, or three, six or nine."""
    if ticks == 0:
        return ""
    digits = "%09d" % (ticks * (1000000000 // per_s))
    while digits.endswith("000"):
        digits = digits[:-3]
    return "." + digits


def time_text(ticks, unit):
    per_s = PER_S[unit]
    seconds, rest = divmod(ticks, per_s)
    # A span that is declared as a time may be longer than a day.
    return "%02d:%02d:%02d%s" % (seconds // 3600, seconds // 60 % 60, seconds % 60, fraction(rest, per_s))


def date_text(days):
    """The proleptic Gregorian date of a day since 1970. Years outside 0 to 9999 have a sign and six digits or more."""
    # Days since the 1st of March of the year 0, in eras of 400 years.
    era, day = divmod(days + 719468, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year + era * 400 + (month <= 2)
    shown = "%04d" % year if 0 <= year <= 9999 else "%+07d" % year
    return "%s-%02d-%02d" % (shown, month, day_of_month)


def moment_text(ticks, unit, zone):
    days, of_day = divmod(ticks, DAY_S * PER_S[unit])
    return "%sT%s%s" % (date_text(days), time_text(of_day, unit), "" if zone is None else "+00:00")


def span_text(ticks, unit):
    per_s = PER_S[unit]
    seconds, rest = divmod(abs(ticks), per_s)
    return "%sPT%d%sS" % ("-" if ticks < 0 else "", seconds, fraction(rest, per_s))


def interval_text(data):
    months, days, ms = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
    return "P%dM%dDT%d%sS" % (months, days, ms // 1000, fraction(ms % 1000, 1000))


# --- columns ---


def each(convert, values):
    return [None if value is None else convert(value) for value in values]


def whole(array):
    """The physical numbers of dates, times, moments and spans."""
    return array.cast(pyarrow.int64() if array.type.bit_width == 64 else pyarrow.int32()).to_pylist()


def texts(array):
    try:
        return array.to_pylist()
    except UnicodeDecodeError:
        return [text(item) for item in array]


def text(item):
    try:
        return item.as_py()
    except UnicodeDecodeError as error:
        return Refused("text that is not UTF-8 at byte %d" % (error.start + 1))


def lists(array):
    """The parts of the inner values, for each list."""
    offsets = array.offsets.to_pylist()
    return list(zip(offsets, offsets[1:], array.is_valid().to_pylist()))


def key_of(key):
    if isinstance(key, (str, Refused)):
        return key
    return json.dumps(key, default=refuse)


def as_object(pairs):
    members = {}
    for key, value in pairs:
        key = key_of(key)
        if isinstance(key, Refused):
            return key
        if key in members:
            return Refused("a map with the key %s twice" % json.dumps(key))
        members[key] = value
    return members


def values(array):
    """The values of a column as JSON has them."""
    kind = array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        inner = values(array.storage)
        if kind.extension_name == "arrow.uuid":
            return each(uuid_text, array.storage.to_pylist())
        return inner
    if types.is_dictionary(kind):
        return values(array.dictionary_decode())
    if types.is_float16(kind):
        return array.cast(pyarrow.float32()).to_pylist()
    if types.is_timestamp(kind):
        return each(lambda ticks: moment_text(ticks, kind.unit, kind.tz), whole(array))
    if types.is_date32(kind):
        return each(date_text, whole(array))
    if types.is_date64(kind):
        return each(lambda ms: date_text(ms // (DAY_S * 1000)), whole(array))
    if types.is_time(kind):
        return each(lambda ticks: time_text(ticks, kind.unit), whole(array))
    if types.is_duration(kind):
        return each(lambda ticks: span_text(ticks, kind.unit), whole(array))
    if types.is_decimal(kind):
        return each(lambda number: format(number, "f"), array.to_pylist())
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or "binary" in str(kind):
        return each(lambda data: base64.b64encode(data).decode(), array.to_pylist())
    if types.is_map(kind):
        return objects(array)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        first = array.offset * size
        inner = values(array.values.slice(first, len(array) * size))
        valid = array.is_valid().to_pylist()
        return [inner[at * size : (at + 1) * size] if there else None for at, there in enumerate(valid)]
    if types.is_list(kind) or types.is_large_list(kind):
        parts = lists(array)
        first, end = (parts[0][0], parts[-1][1]) if parts else (0, 0)
        inner = values(array.values.slice(first, end - first))
        return [inner[a - first : b - first] if there else None for a, b, there in parts]
    if types.is_struct(kind):
        names = [kind.field(at).name for at in range(kind.num_fields)]
        check_names(names)
        members = [values(column) for column in array.flatten()]
        valid = array.is_valid().to_pylist()
        rows = zip(*members) if members else ((),) * len(array)
        return [dict(zip(names, row)) if there else None for row, there in zip(rows, valid)]
    return texts(array)


def objects(array):
    parts = lists(array)
    first, end = (parts[0][0], parts[-1][1]) if parts else (0, 0)
    keys = values(array.keys.slice(first, end - first))
    inner = values(array.items.slice(first, end - first))
    pairs = list(zip(keys, inner))
    return [as_object(pairs[a - first : b - first]) if there else None for a, b, there in parts]


def uuid_text(data):
    # By its bytes in older versions of pyarrow.
    digits = data.hex() if isinstance(data, bytes) else data.hex
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def check_names(names):
    for name in names:
        if names.count(name) > 1:
            raise ValueError("two columns are named `%s`: rename one of them" % name)


# --- rows ---


def batches(path):
    """Batches of the file. Moments of 96 bits are read as nanoseconds where those hold them, and as microseconds elsewhere: as
    nanoseconds they would be other moments."""
    file = pyarrow.parquet.ParquetFile(path)
    old = {
        file.schema.column(at).path.partition(".")[0]
        for at in range(len(file.schema))
        if file.schema.column(at).physical_type == "INT96"
    }
    if not old:
        for batch in file.iter_batches(batch_size=ROWS):
            yield batch
        return
    coarse = pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
    for batch, other in zip(file.iter_batches(batch_size=ROWS), coarse.iter_batches(batch_size=ROWS)):
        columns = [
            rough if name in old and not fits_ns(rough) else fine
            for name, fine, rough in zip(batch.schema.names, batch.columns, other.columns)
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def fits_ns(column):
    return types.is_timestamp(column.type) and all(
        ticks is None or -NS_IN_US_MAX < ticks < NS_IN_US_MAX for ticks in whole(column)
    )


def intervals_of(path):
    """The columns that are intervals: 12 bytes each."""
    schema = pyarrow.parquet.ParquetFile(path).schema
    columns = [schema.column(at) for at in range(len(schema))]
    return {column.path for column in columns if str(column.converted_type).upper() == "INTERVAL"}


def line_of(names, row, encode):
    try:
        return encode(dict(zip(names, row)))
    except (RefusedRow, ValueError):
        pass
    for name, value in zip(names, row):
        try:
            encode(value)
        except RefusedRow as refused:
            return "%scolumn `%s` has %s" % (REFUSED, name, refused)
        except ValueError:
            return "%scolumn `%s` has NaN or an infinity, which JSON cannot hold: write null or text instead" % (REFUSED, name)
    return REFUSED + "the row has no JSON"


def main(path):
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=refuse).encode
    intervals = intervals_of(path)
    write = sys.stdout.write
    for batch in batches(path):
        names = batch.schema.names
        check_names(names)
        columns = [
            each(interval_text, column.to_pylist()) if name in intervals else values(column)
            for name, column in zip(names, batch.columns)
        ]
        for row in zip(*columns):
            write(line_of(names, row, encode) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except BrokenPipeError:
        sys.stderr.close()
    except Exception as error:
        sys.exit("%s: %s" % (type(error).__name__, error))
