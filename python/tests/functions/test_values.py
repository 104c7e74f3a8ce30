"""Types between Python and JSON: each comes back as it was, or is refused with its place."""

import collections
import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from pathlib import Path
from typing import Annotated, Literal, Mapping, NamedTuple, Optional, Sequence, TypedDict, Union

import pytest
import shop

from gristmill import _values
from gristmill._items.portions import encoded
from gristmill._items.shape import Shape


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(enum.Enum):
    HERE = (1, 2)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Row(NamedTuple):
    at: datetime.date
    n: int = 2


Plain = collections.namedtuple("Plain", "a b")


@dataclasses.dataclass
class Tree:
    name: str
    children: "list[Tree]" = dataclasses.field(default_factory=list)
    parent: "Tree | None" = None


@dataclasses.dataclass(frozen=True)
class Numbered:
    name: str
    number: int = dataclasses.field(init=False)
    at: datetime.date = dataclasses.field(init=False)

    made: typing.ClassVar[int] = 0

    def __post_init__(self):
        Numbered.made += 1
        object.__setattr__(self, "number", Numbered.made)
        object.__setattr__(self, "at", datetime.date(2026, 1, Numbered.made % 28 + 1))


@dataclasses.dataclass
class Cat:
    name: str
    lives: int = 9


@dataclasses.dataclass
class Dog:
    name: str
    tricks: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Circle:
    size: int
    kind: Literal["circle"] = "circle"


@dataclasses.dataclass
class Square:
    size: int
    kind: Literal["square"] = "square"


class Label(TypedDict, total=False):
    text: typing.Required[str] if hasattr(typing, "Required") else str
    at: datetime.date


T = typing.TypeVar("T")
UserId = typing.NewType("UserId", uuid.UUID)


@dataclasses.dataclass
class Box(typing.Generic[T]):
    items: list[T]
    at: datetime.date


DATE = datetime.date(2026, 2, 3)
MOMENT = datetime.datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=datetime.timezone.utc)
ID = uuid.UUID(int=7)

ROUND_TRIPS = [
    (Tree, Tree("a", [Tree("b", [Tree("c")])], Tree("d"))),
    (Numbered, Numbered("a")),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[int, dict[int, Color]], {1: {2: Color.RED}}),
    (dict[float, int], {1.5: 1, 1e300: 2}),
    (dict[bool, int], {True: 1, False: 0}),
    (dict[Optional[int], int], {None: 1, 3: 2}),
    (dict[Color, Level], {Color.RED: Level.HIGH}),
    (dict[Level, int], {Level.LOW: 1, Level.HIGH: 2}),
    (dict[datetime.date, uuid.UUID], {DATE: ID}),
    (dict[Path, decimal.Decimal], {Path("a/b"): decimal.Decimal("1.10")}),
    (Mapping[str, Tree], {"a": Tree("b")}),
    (collections.OrderedDict[int, Tree], collections.OrderedDict([(2, Tree("b")), (1, Tree("a"))])),
    (Sequence[Row], [Row(DATE), Row(DATE, 5)]),
    (Row, Row(DATE, 7)),
    (Plain, Plain(1, "b")),
    (tuple[Row, ...], (Row(DATE),)),
    (collections.deque[Color], collections.deque([Color.RED])),
    (typing.AbstractSet[Color], {Color.RED}),
    (frozenset[Row], frozenset([Row(DATE)])),
    (Place, Place.HERE),
    (Rights, Rights.READ | Rights.WRITE),
    (datetime.datetime, MOMENT),
    (datetime.time, datetime.time(1, 2, 3)),
    (UserId, ID),
    (Annotated[Tree, "the root"], Tree("a")),
    (Label, {"text": "a", "at": DATE}),
    (Box[int], Box([1], DATE)),
    (Union[int, Tree], Tree("a")),
    (Union[int, Tree], 5),
    (Union[Cat, Dog], Dog("a", ["sit"])),
    (Union[Cat, Dog], Cat("a")),
    (Union[Circle, Square], Square(2)),
    (Union[list[Tree], Tree], Tree("a")),
    (Union[list[Tree], Tree], [Tree("a")]),
    (Union[str, datetime.date], "2026-01-01"),
    (Union[int, datetime.date], DATE),
    (Union[float, decimal.Decimal], decimal.Decimal("1.10")),
    (Union[float, decimal.Decimal], 1.5),
    (Union[Color, int], Color.BLUE),
    (Union[Color, int], 7),
    (Union[bool, Row, None], Row(DATE)),
    (Union[bool, Row, None], None),
]


def same(value):
    return value


@pytest.mark.parametrize(("annotation", "value"), ROUND_TRIPS, ids=lambda part: str(part)[:60])
def test_a_value_comes_back_as_it_was(annotation, value):
    import json

    convert = _values.converter(annotation)
    back = json.loads(encoded(value, _values.to_plain))
    back = back if convert is None else convert(back)
    assert back == value and type(back) is type(value)


def test_values_come_back_from_a_worker(app):
    """By the encoders of the engine and of a worker's process."""
    for annotation, value in ROUND_TRIPS:
        job = shop.app.job(same, name="same")
        job = type(job)(app, same, "same", "default", job.options)
        job.shape = Shape(same)
        job.shape.result = _values.converter(annotation)
        assert list(job.map([value])) == [value]


def annotated(members: dict[Color, int], row: Row, *trees: Tree, **named: dict[int, Tree]) -> list:
    return [
        members == {Color.RED: 1} and type(row) is Row and {type(tree) for tree in trees} == {Tree},
        {color: [*named["of"]] for color in members},
    ]


def test_annotated_arguments_and_keys_of_results(app):
    job = app.job(annotated)
    handle = job.submit({Color.RED: 1}, Row(DATE), Tree("a"), Tree("b"), of={7: Tree("c")})
    app.drain()
    assert handle.result() == [True, {"r": [7]}]


def test_keys_of_numpy_are_text(app):
    numpy = pytest.importorskip("numpy")
    value = {numpy.int64(1): "a", numpy.str_("b"): 2, numpy.datetime64("2026-01-02"): 3}
    assert list(app.map(same, [value])) == [{"1": "a", "b": 2, "2026-01-02T00:00:00": 3}]
    assert list(app.map(lambda n: {numpy.int64(n): numpy.bool_(True)}, [3])) == [{"3": True}]
    assert _values.converter(dict[numpy.int64, int])({"1": 2}) == {numpy.int64(1): 2}


def test_keys_that_become_the_same_text_are_refused(app):
    with pytest.raises(TypeError, match='item 0: two keys of a dict in a payload are "1"'):
        list(app.map(same, [{1: "a", "1": "b"}]))
    with pytest.raises(ValueError, match="two keys of a dict are the same text"):
        _values.plain_keys({Color.RED: 1, "r": 2})
    with pytest.raises(TypeError, match="item 0: a key of type tuple"):
        list(app.map(same, [{(1, 2): "a"}]))


@dataclasses.dataclass
class Doubling:
    n: int

    def __post_init__(self):
        self.n *= 2


@dataclasses.dataclass
class Needy:
    n: int
    key: dataclasses.InitVar[str]

    def __post_init__(self, key):
        self.n += len(key)


def test_an_object_that_would_be_read_back_as_another_is_refused(app):
    with pytest.raises(TypeError, match="item 0: the field Doubling.n is 2, and would be 4 when it is read back"):
        list(app.map(same, [Doubling(1)]))
    with pytest.raises(TypeError, match="Needy cannot be read back from its JSON .*key"):
        list(app.map(same, [Needy(1, "a")]))


def test_objects_of_the_same_members_cannot_be_told_apart():
    convert = _values.converter(Union[Cat, dataclasses.make_dataclass("Lion", [("name", str), ("lives", int)])])
    with pytest.raises(TypeError, match=r"members \['lives', 'name'\] may be any of Cat, Lion: give the classes a field of their own Lit"):
        convert({"name": "a", "lives": 2})


def test_pydantic_models_come_back_as_they_were(app):
    pydantic = pytest.importorskip("pydantic")

    class Inner(pydantic.BaseModel):
        model_config = {"extra": "forbid"}
        n: int = pydantic.Field(alias="N")

        @pydantic.computed_field
        @property
        def twice(self) -> int:
            return 2 * self.n

    class Model(Inner):
        inner: Optional[Inner] = None
        by_color: dict[Color, int] = {}
        at: Optional[datetime.timedelta] = None

        @pydantic.field_validator("n")
        @classmethod
        def positive(cls, n):
            return abs(n)

    convert = _values.converter(Model)
    value = Model(N=-1, inner=Inner(N=2), by_color={Color.RED: 1}, at=datetime.timedelta(seconds=3))
    # Names of fields are what Gristmill writes; aliases are taken, too.
    assert list(app.map(same, [value])) == [
        {"n": 1, "inner": {"n": 2}, "by_color": {"r": 1}, "at": "PT3S"},
    ]
    assert convert(_values.to_plain(value)) == value
    assert convert({"N": 1, "inner": {"N": 2}}).inner.n == 2
    assert _values.converter(Union[Model, Cat])(_values.to_plain(value)) == value
    assert _values.converter(Mapping[str, Model])({"a": {"N": 3}})["a"].n == 3
    root = pydantic.RootModel[list[int]]([1])
    assert _values.converter(type(root))(_values.to_plain(root)) == root


def test_pydantic_models_that_would_change_are_refused(app):
    pydantic = pytest.importorskip("pydantic")

    class Account(pydantic.BaseModel):
        password: pydantic.SecretStr

    class Priced(pydantic.BaseModel):
        price: float

        @pydantic.field_validator("price")
        @classmethod
        def add_tax(cls, price):
            return price * 2

    class Hidden(pydantic.BaseModel):
        n: int = pydantic.Field(default=1, exclude=True)

    with pytest.raises(TypeError, match="item 0: the field .*Account.password is a secret, which pydantic hides in JSON: give a reference"):
        list(app.map(same, [Account(password="x")]))
    with pytest.raises(TypeError, match="an object of the type SecretStr cannot become JSON: give a reference to it"):
        list(app.map(same, [{"password": pydantic.SecretStr("x")}]))
    with pytest.raises(TypeError, match="Priced.price is 2.0, and would be 4.0"):
        list(app.map(same, [Priced(price=1)]))
    with pytest.raises(TypeError, match="Hidden.n is 2, and would be 1"):
        list(app.map(same, [Hidden(n=2)]))
    assert list(app.map(same, [Hidden()])) == [{}]


def test_missing_values_of_series_are_none(app):
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([1.5, None, 3])
    assert list(app.map(same, series)) == [1.5, None, 3]
    assert list(app.map(same, pandas.Series(["a", None]))) == ["a", None]
    assert list(app.map(same, pandas.Series([1, None], dtype="Int64"))) == [1, None]
    assert list(app.map(same, [series, pandas.Series(pandas.to_datetime(["2026-01-02", None]))])) == [
        [1.5, None, 3],
        ["2026-01-02T00:00:00", None],
    ]
    polars = pytest.importorskip("polars")
    assert list(app.map(same, [polars.Series([1, None])])) == [[1, None]]


def test_columns_of_one_name_are_refused(app):
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="two columns are named 'a': rename one"):
        list(app.map(same, pandas.DataFrame([[1, 2]], columns=["a", "a"])))
    with pytest.raises(ValueError, match="two columns are named '1'"):
        list(app.map(same, pandas.DataFrame([[1, 2]], columns=[1, "1"])))
    with pytest.raises(ValueError, match="two columns are named 'a'"):
        list(app.map(same, pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])))
