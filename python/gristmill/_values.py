"""Payloads and values between JSON and Python's types."""

# Values are of any type, and `isinstance` leaves the types of their parts unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import sys
import types
import typing
import uuid
from pathlib import PurePath
from typing import Any, Callable

Converter = Callable[[Any], Any]


def to_plain(value: Any) -> Any:
    """What JSON has for an object of another type: dataclasses and pydantic models become dicts, sets and ranges lists, dates
    ISO 8601, decimals text."""
    if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
        return _plain_model(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_dataclass(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        # A missing moment of pandas (NaT) is not equal to itself.
        return value.isoformat() if value == value else None
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset, range, collections.deque)):
        return [*typing.cast("typing.Iterable[Any]", value)]
    if isinstance(value, (uuid.UUID, PurePath, decimal.Decimal)):
        return str(value)
    if getattr(getattr(value, "dtype", None), "kind", None) == "M":
        # Of a finer unit, numpy would give the nanoseconds since 1970 as a number.
        return typing.cast(Any, value).astype("datetime64[us]").tolist()
    present = getattr(typing.cast(Any, value), "notna", None)
    if callable(present) and hasattr(value, "iloc"):
        # A series of pandas. What is missing is None, as in the rows of a table.
        return [item if there else None for item, there in zip(typing.cast(Any, value).tolist(), typing.cast(Any, present()))]
    # Scalars and arrays of numpy, pandas and the like; series of polars.
    for name in ("tolist", "to_list"):
        make_list = getattr(typing.cast(Any, value), name, None)
        if callable(make_list):
            return make_list()
    kind = typing.cast(Any, type(value))
    if kind.__name__ == "NAType":
        # A missing value of pandas.
        return None
    if kind in (bytes, bytearray, memoryview):
        remedy = "give text, such as base64.b64encode(data).decode(), or the path of a file"
    elif isinstance(value, datetime.timedelta):
        remedy = "give seconds, by its total_seconds()"
    elif hasattr(value, "get_secret_value"):
        remedy = "give a reference to it, such as the name of an environment variable; a job keeps its payload"
    else:
        remedy = (
            "give a dict, list, str, int, float, bool, None, a dataclass or a pydantic model, or convert it first"
        )
    raise TypeError(f"an object of the type {kind.__qualname__} cannot become JSON: {remedy}")


def _plain_dataclass(value: Any) -> dict[str, Any]:
    fields = dataclasses.fields(value)
    plain = {field.name: getattr(value, field.name) for field in fields}
    if hasattr(value, "__post_init__") or hasattr(value, "__pydantic_validator__"):
        _check_same(value, lambda: _made(type(value), fields, plain), plain)
    return plain


def _plain_model(value: Any) -> Any:
    # Without computed fields, which the class computes again.
    plain = value.model_dump(mode="json", round_trip=True)
    names = type(value).model_fields
    _check_same(value, lambda: _validated(type(value), plain), {name: getattr(value, name) for name in names})
    return plain


def _check_same(value: Any, read_back: Callable[[], Any], members: dict[str, Any]) -> None:
    """Refuses an object that its class would read back as a different one."""
    kind = type(value).__qualname__
    remedy = "make the conversion of its class idempotent and keep nothing out of its JSON, or give a dict or a dataclass"
    try:
        again = read_back()
    except Exception as error:
        raise TypeError(f"an object of the class {kind} cannot be read back from its JSON ({error}): {remedy}") from error
    for name, member in members.items():
        found = getattr(again, name)
        try:
            is_same = bool(found == member) or (found != found and member != member)
        except Exception:
            # Arrays and the like have no truth.
            continue
        if not is_same:
            if hasattr(member, "get_secret_value"):
                raise TypeError(
                    f"the field {kind}.{name} is a secret, which pydantic hides in JSON: give a reference to it, such as the name of an"
                    " environment variable; a job keeps its payload"
                )
            raise TypeError(f"the field {kind}.{name} is {member!r}, and would be {found!r} when it is read back: {remedy}")


# --- keys ---


def plain_keys(value: Any) -> Any:
    """Converts a value so that the keys of its dicts are text; other objects are converted, too."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        given: dict[Any, Any] = value
        members = {key_text(key): plain_keys(member) for key, member in given.items()}
        if len(members) < len(given):
            raise ValueError(f"two keys of a dict are the same text in JSON, among {[*given][:8]!r}: give a list of pairs")
        return members
    if isinstance(value, (list, tuple)):
        return [plain_keys(item) for item in typing.cast("typing.Iterable[Any]", value)]
    return plain_keys(to_plain(value))


def key_text(key: Any) -> str:
    """A key as in `json.dumps`: text, or a number, a bool or None as text; others by their plain values."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, (int, float)):
        return int.__repr__(key) if isinstance(key, int) else float.__repr__(key)
    plain = key if isinstance(key, tuple) else to_plain(key)
    if type(plain) is not type(key) and not isinstance(plain, (list, dict)):
        return key_text(plain)
    raise TypeError(f"a key of the type {type(key).__qualname__}: JSON's keys are text")


def _key_converter(annotation: Any) -> Converter | None:
    """A function that converts the text of a key to the annotated type."""
    if annotation in (int, float):
        return typing.cast(Converter, annotation)
    if annotation is bool:
        return lambda key: {"true": True, "false": False}[key]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = {key_text(member.value): member for member in annotation}
        return lambda key: members[key] if key in members else annotation(key)
    arguments = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
    if _is_union(annotation) and len(arguments) == 1:
        inner = _key_converter(arguments[0])
        return lambda key: None if key == "null" else key if inner is None else inner(key)
    if getattr(annotation, "__module__", None) == "numpy":
        return typing.cast(Converter, annotation)
    return converter(annotation)


# --- annotations ---

_LISTS: dict[Any, Any] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_MAPPINGS = (dict, collections.OrderedDict, collections.abc.Mapping, collections.abc.MutableMapping)
_WRAPPERS = ("Required", "NotRequired", "ReadOnly", "Final")


def converter(annotation: Any) -> Converter | None:
    """A function that converts JSON types to the annotated type; None if nothing needs conversion."""
    if annotation is None or annotation is Any or annotation is typing.Generic:
        return None
    if isinstance(annotation, typing.TypeVar):
        return None
    inner = getattr(annotation, "__supertype__", None)
    if inner is None and type(annotation).__name__ == "TypeAliasType":
        inner = annotation.__value__
    if inner is not None:
        # A type of another name.
        return converter(inner)
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated or getattr(origin, "_name", None) in _WRAPPERS:
        return converter(arguments[0])
    if _is_union(annotation):
        return _of_union(arguments)
    if origin in _LISTS:
        return _of_items(_LISTS[origin], converter(arguments[0]))
    if origin is tuple:
        return _of_tuple(arguments)
    if origin in _MAPPINGS or origin is collections.defaultdict:
        make = collections.OrderedDict if origin is collections.OrderedDict else dict
        return _of_mapping(make, _key_converter(arguments[0]), converter(arguments[1]))
    if isinstance(origin, type):
        annotation = origin
    if not isinstance(annotation, type):
        return None
    return _of_class(annotation)


def _of_class(annotation: Any) -> Converter | None:
    if callable(getattr(annotation, "model_validate", None)):
        return lambda value: _validated(annotation, value)
    if dataclasses.is_dataclass(annotation):
        return _of_dataclass(annotation)
    if typing.is_typeddict(annotation):
        return _of_typed_dict(annotation)
    if issubclass(annotation, enum.Enum):
        return lambda value: _member(annotation, value)
    if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        return _of_named_tuple(annotation)
    if issubclass(annotation, (datetime.datetime, datetime.time)):
        # Python 3.10 does not know the Z of UTC.
        return lambda value: annotation.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
    if issubclass(annotation, datetime.date):
        return typing.cast(Converter, annotation.fromisoformat)
    if annotation in (tuple, set, frozenset, collections.deque, uuid.UUID, decimal.Decimal) or issubclass(annotation, PurePath):
        return typing.cast(Converter, annotation)
    return None


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _validated(model: Any, value: Any) -> Any:
    """A pydantic model from an object whose members have the names of its fields, or their aliases."""
    try:
        return model.model_validate(value, by_alias=True, by_name=True)
    except TypeError:
        # Before pydantic 2.11.
        names = {field.alias: name for name, field in model.model_fields.items() if field.alias and field.alias != name}
        if names and isinstance(value, dict):
            aliases = {name: alias for alias, name in names.items()}
            value = {aliases.get(name, name): item for name, item in typing.cast("dict[str, Any]", value).items()}
        return model.model_validate(value)


def _member(annotation: Any, value: Any) -> Any:
    try:
        return annotation(value)
    except (TypeError, ValueError):
        for member in annotation:
            # The values of some are tuples, which are lists in JSON.
            if isinstance(member.value, tuple) and isinstance(value, list) and [*member.value] == value:
                return member
        raise


def _of_items(make: Any, inner: Converter | None) -> Converter | None:
    if inner is None:
        return None if make is list else make
    return lambda value: make([inner(item) for item in value])


def _of_tuple(arguments: tuple[Any, ...]) -> Converter:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = converter(arguments[0])
        return tuple if inner is None else lambda value: tuple([inner(item) for item in value])
    inners = [converter(argument) for argument in arguments]

    def convert(value: Any) -> Any:
        return tuple([item if inner is None else inner(item) for inner, item in zip(inners, value, strict=True)])

    return convert


def _of_named_tuple(annotation: Any) -> Converter:
    inners = _Inners(annotation, annotation._fields)

    def convert(value: Any) -> Any:
        members = value if isinstance(value, dict) else dict(zip(annotation._fields, value))
        if len(members) < len(value):
            raise TypeError(f"{annotation.__qualname__} has {len(annotation._fields)} fields, and the list {len(value)} items")
        return annotation(**inners.converted(members))

    return convert


def _of_mapping(make: Any, of_key: Converter | None, inner: Converter | None) -> Converter | None:
    if of_key is None and inner is None and make is dict:
        return None

    def convert(value: Any) -> Any:
        return make(
            (key if of_key is None else of_key(key), item if inner is None else inner(item)) for key, item in value.items()
        )

    return convert


class _Inners:
    """The converters of a class's members. They are looked up at the first value, because a class may refer to itself."""

    def __init__(self, annotated: Any, names: typing.Iterable[str]) -> None:
        self.annotated = annotated
        self.names = names
        self.found: dict[str, Converter] | None = None

    def converted(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members, converted."""
        if self.found is None:
            hints = _hints(self.annotated)
            self.found = {}
            for name in self.names:
                convert = converter(hints.get(name))
                if convert is not None:
                    self.found[name] = convert
        return {name: self.found[name](item) if name in self.found else item for name, item in members.items()}


def _of_dataclass(annotation: Any) -> Converter:
    fields = dataclasses.fields(annotation)
    inners = _Inners(annotation, [field.name for field in fields])

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{annotation.__qualname__} is made of a JSON object, not of a {type(value).__qualname__}")
        return _made(annotation, fields, inners.converted(typing.cast("dict[str, Any]", value)))

    return convert


def _made(annotation: Any, fields: tuple[Any, ...], members: dict[str, Any]) -> Any:
    """An object of a dataclass. Fields that are not parameters of its class are set afterwards."""
    later = {field.name for field in fields if not field.init} & members.keys()
    made = annotation(**{name: member for name, member in members.items() if name not in later})
    for name in later:
        # Also where the class is frozen.
        object.__setattr__(made, name, members[name])
    return made


def _of_typed_dict(annotation: Any) -> Converter | None:
    inners = _Inners(annotation, annotation.__annotations__)
    return lambda value: inners.converted(value)


# --- unions ---


def _of_union(arguments: tuple[Any, ...]) -> Converter | None:
    """The type of an Optional. For other unions, the alternative that fits the JSON type and the members of an object."""
    alternatives = [argument for argument in arguments if argument is not type(None)]
    inners = [converter(argument) for argument in alternatives]
    if all(inner is None for inner in inners):
        return None
    takes = [_json_types(argument) for argument in alternatives]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        fit = [at for at, types_taken in enumerate(takes) if types_taken is None or isinstance(value, types_taken)]
        fit = [at for at in fit if not (isinstance(value, bool) and alternatives[at] in (int, float))]
        if isinstance(value, dict):
            fit = _of_these_members(fit, alternatives, typing.cast("dict[str, Any]", value))
        elif isinstance(value, str) and str in alternatives:
            # Text stays text.
            return value
        refused: Exception = TypeError(f"a {type(value).__qualname__} is none of {_named(alternatives)}")
        for at in fit:
            inner = inners[at]
            if inner is None:
                return value
            try:
                return inner(value)
            except Exception as error:
                refused = error
        raise refused

    return convert


def _named(alternatives: typing.Iterable[Any]) -> str:
    return ", ".join(getattr(alternative, "__qualname__", str(alternative)) for alternative in alternatives)


def _json_types(annotation: Any) -> tuple[type, ...] | None:
    """The JSON type of a type; None if it may be any."""
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Annotated, typing.Literal):
        values = typing.get_args(annotation)
        return _json_types(values[0]) if origin is typing.Annotated else tuple({type(value) for value in values})
    if not isinstance(origin, type) or origin is object:
        return None
    if issubclass(origin, enum.Enum):
        of_values = {list if isinstance(member.value, tuple) else type(member.value) for member in origin}
        return tuple(of_values)
    if issubclass(origin, float):
        return (float, int)
    for plain in (bool, int, str):
        if issubclass(origin, plain):
            return (plain,)
    if origin in _MAPPINGS or typing.is_typeddict(origin) or dataclasses.is_dataclass(origin):
        return (dict,)
    if callable(getattr(origin, "model_validate", None)):
        return None if hasattr(origin, "__pydantic_root_model__") and origin.__pydantic_root_model__ else (dict,)
    if issubclass(origin, tuple) and hasattr(origin, "_fields"):
        return (list, dict)
    if origin in _LISTS or origin is tuple:
        return (list,)
    if issubclass(origin, (datetime.date, datetime.time, uuid.UUID, decimal.Decimal, PurePath)):
        return (str,)
    return None


def _of_these_members(fit: list[int], alternatives: list[Any], value: dict[str, Any]) -> list[int]:
    """The alternatives that fit an object with these members. Two classes with the same members cannot be distinguished."""
    if len(fit) < 2:
        return fit
    exact: list[int] = []
    possible: list[int] = []
    for at in fit:
        members = _members(alternatives[at])
        if members is None:
            possible.append(at)
            continue
        every, aliases, required, literals = members
        if not required <= value.keys() or any(name in value and value[name] not in those for name, those in literals.items()):
            continue
        if every == value.keys():
            exact.append(at)
        elif value.keys() <= every | aliases:
            possible.append(at)
    found = exact or possible
    if len(exact) > 1:
        names = _named(alternatives[at] for at in exact)
        raise TypeError(f"an object of the members {sorted(value)} may be any of {names}: give the classes a field of their own Literal")
    return found


def _members(annotation: Any) -> tuple[set[str], set[str], set[str], dict[str, tuple[Any, ...]]] | None:
    """All members of a class's objects, their other names, the required ones, and the values of Literal members."""
    kind: Any = typing.get_origin(annotation) or annotation
    aliases: set[str] = set()
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        every = {field.name for field in fields}
        missing = dataclasses.MISSING
        required = {f.name for f in fields if f.init and f.default is missing and f.default_factory is missing}
    elif callable(getattr(kind, "model_validate", None)):
        every = set(kind.model_fields)
        aliases = {field.alias for field in kind.model_fields.values() if field.alias}
        required = {name for name, field in kind.model_fields.items() if field.is_required() and not field.alias}
    elif typing.is_typeddict(kind):
        every, required = set(kind.__annotations__), set(kind.__required_keys__)
    else:
        return None
    hints = _hints(kind)
    literals = {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is typing.Literal}
    return every, aliases, required, literals


def _hints(annotated: Any) -> dict[str, Any]:
    return typing.get_type_hints(annotated, include_extras=True)


def hints_of(function: Any) -> dict[str, Any]:
    """The resolved annotations of a function; none if one of them cannot be resolved."""
    try:
        return _hints(function)
    except Exception as error:
        if getattr(function, "__annotations__", None):
            print(f"gristmill: the annotations of {function!r} are not used: {error}", file=sys.stderr)
        return {}
