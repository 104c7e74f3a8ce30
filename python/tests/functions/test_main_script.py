"""Main scripts as people write them: a mapped function sees the values as they are at the call, and the script is not read again."""

import dataclasses
import textwrap

import pytest


@dataclasses.dataclass
class Script:
    """A script that follows `import gristmill; app = …`, what it prints, and how it is called."""

    source: str
    printed: str
    arguments: tuple = ()
    given: str = ""
    module: str = ""
    files: dict = dataclasses.field(default_factory=dict)


SCRIPTS = {
    "a dict that was changed before the map": Script(
        """
        config = {"k": 1}
        def times(x):
            return config["k"] * x
        config.update(k=7)
        print(list(app.map(times, [1, 2])))
        """,
        "[7, 14]",
    ),
    "a global that was bound anew": Script(
        """
        k = 1
        def times(x):
            return k * x
        def main():
            global k
            k = 5
            print(list(app.map(times, [1, 2])))
            k = 6
            print(list(app.map(times, [1, 2])))
        main()
        """,
        "[5, 10]\n[6, 12]",
    ),
    "a list that changed between two maps": Script(
        """
        seen = [1]
        def count(x):
            return len(seen) + x
        print(list(app.map(count, [0])))
        seen.extend([2, 3])
        print(list(app.map(count, [0])))
        """,
        "[1]\n[3]",
    ),
    "a loop whose variable the function reads": Script(
        """
        def times(x):
            return factor * x
        for factor in (2, 3):
            print(list(app.map(times, [1, 2])))
        """,
        "[2, 4]\n[3, 6]",
    ),
    "closures of a loop": Script(
        """
        def adder(n):
            def add(x):
                return x + n
            return add
        print([list(app.map(adder(n), [1])) for n in (1, 2)])
        """,
        "[[2], [3]]",
    ),
    "a lambda over a global": Script(
        """
        offset = 1
        add = lambda x: x + offset
        offset = 10
        print(list(app.map(add, [1])))
        """,
        "[11]",
    ),
    "nested functions that share a closure": Script(
        """
        def make():
            base = [1]
            def even(n):
                return True if n == 0 else odd(n - 1)
            def odd(n):
                return False if n == 0 else even(n - 1)
            base.append(5)
            return lambda n: [even(n), base[-1]]
        print(list(app.map(make(), [3, 4])))
        """,
        "[[False, 5], [True, 5]]",
    ),
    "a helper of a helper": Script(
        """
        level = "low"
        def inner():
            return level
        def outer(x):
            return [x, inner()]
        level = "high"
        print(list(app.map(outer, [1])))
        """,
        "[[1, 'high']]",
    ),
    "an attribute of a class that was changed": Script(
        """
        class Config:
            k = 1
            @classmethod
            def times(cls, x):
                return cls.k * x
        Config.k = 7
        def call(x):
            return [Config.k, Config.times(x)]
        print(list(app.map(call, [2])))
        """,
        "[[7, 14]]",
    ),
    "an instance with state": Script(
        """
        class Counter:
            def __init__(self):
                self.n = 0
            def __call__(self, x):
                return self.n + x
            def add(self, x):
                return self.n - x
        counter = Counter()
        counter.n = 4
        print(list(app.map(counter, [1])), list(app.map(counter.add, [1])))
        counter.n = 5
        print(list(app.map(lambda x: counter.n, [1])))
        """,
        "[5] [3]\n[5]",
    ),
    "inheritance, super and slots": Script(
        """
        import abc
        class Base(abc.ABC):
            __slots__ = ("n",)
            def __init__(self, n):
                self.n = n
            @abc.abstractmethod
            def value(self): ...
        class Twice(Base):
            def __init__(self, n):
                super().__init__(2 * n)
            def value(self):
                return self.n
        print(list(app.map(lambda n: Twice(n).value(), [3])))
        """,
        "[6]",
    ),
    "a partial over a global list": Script(
        """
        import functools
        table = [10]
        def look(index, extra):
            return table[index] + extra
        table[0] = 20
        print(list(app.map(functools.partial(look, extra=1), [0])))
        """,
        "[21]",
    ),
    "a guard below its functions": Script(
        """
        settings = {}
        def read(x):
            return settings.get("mode")
        if __name__ == "__main__":
            settings["mode"] = "fast"
            print(list(app.map(read, [1])))
        """,
        "['fast']",
    ),
    "no guard, and top-level code that runs once": Script(
        """
        with open("runs", "a") as file:
            file.write("run\\n")
        def same(x):
            return x
        print(list(app.map(same, range(3), processes=2)), open("runs").read().count("run"))
        """,
        "[0, 1, 2] 1",
    ),
    "input at the top": Script(
        """
        name = input()
        def greet(x):
            return f"{name} {x}"
        print(list(app.map(greet, [1], processes=2)))
        """,
        "['Ada 1']",
        given="Ada\n",
    ),
    "a server socket at the top": Script(
        """
        import socket
        server = socket.socket()
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        other = socket.create_server(("127.0.0.1", 0))
        def same(x):
            return port > 0 and x
        print(list(app.map(same, [3])))
        """,
        "[3]",
    ),
    "argparse at the top": Script(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--factor", type=int)
        parser.add_argument("name")
        args = parser.parse_args()
        def times(x):
            return [args.factor * x, args.name]
        print(list(app.map(times, [2])))
        """,
        "[[6, 'a']]",
        arguments=("--factor", "3", "a"),
    ),
    "sys.argv in the function": Script(
        """
        import sys
        def last(x):
            return sys.argv[-1]
        print(list(app.map(last, [2])))
        """,
        "['b']",
        arguments=("a", "b"),
    ),
    "a module-level cache": Script(
        """
        cache = {}
        def square(x):
            if x not in cache:
                cache[x] = x * x
            return cache[x]
        cache[2] = "warm"
        print(list(app.map(square, [2, 3])), cache)
        """,
        "['warm', 9] {2: 'warm'}",
    ),
    "functools.cache, wraps and singledispatch": Script(
        """
        import functools
        k = 1
        @functools.cache
        def fib(n):
            return n * k if n < 2 else fib(n - 1) + fib(n - 2)
        def plus(n):
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*args, **kwargs):
                    return function(*args, **kwargs) + n
                return wrapper
            return decorate
        @plus(100)
        def decorated(x):
            return x + k
        @functools.singledispatch
        def kind(x):
            return "other"
        @kind.register
        def _(x: int):
            return "int"
        class Once:
            @functools.cached_property
            def value(self):
                return k
        once = Once()
        k = 2
        print(list(app.map(fib, [10])), list(app.map(decorated, [1])), list(app.map(kind, [1, "a"])))
        print(list(app.map(lambda x: once.value, [0])))
        """,
        "[110] [103] ['int', 'other']\n[2]",
    ),
    "random seeds": Script(
        """
        import random
        generator = random.Random(7)
        first = generator.random()
        def draw(x):
            return generator.random()
        print(list(app.map(draw, [0], processes=1)) == [generator.random()])
        """,
        "True",
    ),
    "a dataclass of main": Script(
        """
        from __future__ import annotations
        import dataclasses
        @dataclasses.dataclass
        class Point:
            x: int
            tags: list[str] = dataclasses.field(default_factory=list)
            inner: Point | None = None
            def moved(self, by: int) -> Point:
                return Point(self.x + by, self.tags, self.inner)
        step = 1
        def move(point: Point) -> Point:
            assert point.inner is None or type(point.inner) is Point
            return point.moved(step)
        step = 2
        print(list(app.map(move, [Point(1), Point(2, ["a"], Point(0))])))
        """,
        "[Point(x=3, tags=[], inner=None), Point(x=4, tags=['a'], inner=Point(x=0, tags=[], inner=None))]",
    ),
    "an enum of main": Script(
        """
        import enum
        class Color(enum.Enum):
            RED = "r"
            BLUE = "b"
            @property
            def other(self):
                return Color.BLUE if self is Color.RED else Color.RED
        favourite = Color.BLUE
        def turn(color: Color) -> Color:
            assert favourite is Color.BLUE
            return color.other
        print(list(app.map(turn, list(Color))))
        """,
        "[<Color.BLUE: 'b'>, <Color.RED: 'r'>]",
    ),
    "an exception of main": Script(
        """
        class Refused(ValueError):
            permanent = True
            def __init__(self, code, text):
                super().__init__(text)
                self.code = code
        def check(x):
            try:
                if x > 1:
                    raise Refused(7, "too much")
            except Refused as error:
                if x > 2:
                    raise
                return error.code
            return x
        values = list(app.map(check, [1, 2, 3], return_exceptions=True))
        print(values[:2], values[2].type, values[2].message)
        """,
        "[1, 7] Refused too much",
    ),
    "typed dicts and named tuples of main": Script(
        """
        import typing, collections
        class Label(typing.TypedDict):
            text: str
        class Pair(typing.NamedTuple):
            left: int
            right: int = 2
        Row = collections.namedtuple("Row", "a b")
        def both(label: Label) -> Label:
            return {"text": label["text"] + str(Pair(1)) + str(Row(1, 2))}
        print(list(app.map(both, [{"text": "x"}])))
        """,
        "[{'text': 'xPair(left=1, right=2)Row(a=1, b=2)'}]",
    ),
    "relative imports of a package": Script(
        """
        from . import helper
        from .helper import constant
        mode = "slow"
        def call(x):
            from .helper import double
            return [double(x), helper.constant, constant, mode, __package__]
        mode = "fast"
        print(list(app.map(call, [2])))
        """,
        "[[4, 9, 9, 'fast', 'pkg']]",
        module="pkg.mod",
        files={"pkg/__init__.py": "", "pkg/helper.py": "constant = 9\ndef double(x):\n    return 2 * x\n"},
    ),
    "a package as main": Script(
        """
        state = []
        def call(x):
            return [x, state]
        if __name__ == "__main__":
            state.append(1)
            print(list(app.map(call, [2])))
        """,
        "[[2, [1]]]",
        module="pkg",
        files={"pkg/__init__.py": ""},
    ),
    "a module beside the script": Script(
        """
        import settings
        from settings import factor as times
        def call(x):
            return [settings.name, times * x]
        print(list(app.map(call, [2])))
        """,
        "[['s', 6]]",
        files={"settings.py": "name = 's'\nfactor = 3\n"},
    ),
    "the precision of decimals": Script(
        """
        import decimal
        decimal.getcontext().prec = 50
        def third(x) -> decimal.Decimal:
            return decimal.Decimal(x) / 3
        print(len(str(*app.map(third, [1]))))
        """,
        "52",
    ),
    "deep recursion": Script(
        """
        import sys
        sys.setrecursionlimit(20_000)
        def depth(n):
            return 0 if n == 0 else 1 + depth(n - 1)
        print(list(app.map(depth, [5_000])))
        """,
        "[5000]",
    ),
    "global state that a function counts": Script(
        """
        calls = 10
        def count(x):
            global calls
            calls += 1
            return calls
        print(list(app.map(count, range(3), processes=1)), calls)
        """,
        "[11, 12, 13] 10",
    ),
    "generators, comprehensions and star expressions": Script(
        """
        words = {"a": 1}
        def numbers(n):
            yield from (words[key] + n for key in words)
        def call(n):
            return [*numbers(n), *[words["a"] for _ in range(n)]]
        words["a"] = 3
        print(list(app.map(call, [1])))
        """,
        "[[4, 3]]",
    ),
    "an asynchronous function": Script(
        """
        import asyncio
        delay = 5
        async def inner(x):
            await asyncio.sleep(0)
            return x + delay
        async def call(x):
            return await inner(x)
        delay = 6
        print(list(app.map(call, [1, 2])))
        """,
        "[7, 8]",
    ),
    "jobs of the script, and those that they submit": Script(
        """
        greeting = "Hello"
        @app.job
        def greet(name: str) -> str:
            return f"{greeting}, {name}"
        @app.job
        def start(names: list) -> list:
            return [greet.submit(name).id for name in names]
        greeting = "Bye"
        handle = start.submit(["Ada"])
        print(app.drain(), [app.details(job).value for job in handle.result()])
        """,
        "2 ['Bye, Ada']",
    ),
    "a batch handler with a key": Script(
        """
        factor = 1
        @app.batch(size=4, wait="1ms", key=lambda text: len(text))
        class Lengths:
            def setup(self):
                self.factor = factor
            def __call__(self, texts):
                return [self.factor * len(text) for text in texts]
        factor = 2
        jobs = Lengths.submit_many(["a", "bb"])
        print(app.drain(), jobs.results())
        """,
        "2 [2, 4]",
    ),
    "pickles and processes in the function": Script(
        """
        import multiprocessing, pickle
        class Point:
            def __init__(self, x):
                self.x = x
        def square(x):
            return x * x
        def call(x):
            with multiprocessing.get_context("fork").Pool(1) as pool:
                return [pickle.loads(pickle.dumps(Point(x))).x, pool.map(square, [x])]
        print(list(app.map(call, [3])))
        """,
        "[[3, [9]]]",
    ),
    "a map inside a mapped function": Script(
        """
        def inner(x):
            return x + 1
        def outer(x):
            return sum(app.map(inner, range(x), processes=1))
        print(list(app.map(outer, [3], processes=1)))
        """,
        "[6]",
    ),
    "an executor whose function reads a global": Script(
        """
        mode = 1
        def call(x):
            return x + mode
        with app.executor(1) as executor:
            first = executor.submit(call, 1).result(timeout=30)
            mode = 10
            print(first, executor.submit(call, 1).result(timeout=30), list(executor.map(call, [1, 2])))
        """,
        "2 11 [11, 12]",
    ),
    "large values": Script(
        """
        table = list(range(1_000_000))
        def look(x):
            return table[x]
        table[5] = -5
        print(list(app.map(look, [5, 999_999], processes=1)))
        """,
        "[-5, 999999]",
    ),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_main_script(run_python, tmp_path, script):
    for name, text in script.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    source = textwrap.dedent(script.source).lstrip("\n")
    head = 'import gristmill\napp = gristmill.App("jobs.db")\n'
    first, _, rest = source.partition("\n")
    source = f"{first}\n{head}{rest}" if first.startswith("from __future__") else head + source
    ended = run_python(source, *script.arguments, module=script.module, given=script.given)
    assert ended.stdout == script.printed + "\n", ended.stderr


REFUSED = {
    "a lock": ("import threading\nlock = threading.Lock()", "lock", "`lock`, a lock that cannot travel"),
    "a lock of a helper": ("import threading\nlock = threading.Lock()\ndef held():\n    return lock.locked()", "held()", "`lock`, a lock"),
    "a connection": ("import sqlite3\ndatabase = sqlite3.connect(':memory:')", "database", "`database`, a Connection that cannot travel"),
    "an open file": ("log = open('log', 'a')", "log.write('x')", "`log`, a TextIOWrapper that cannot travel"),
    "a generator": ("numbers = (n for n in range(3))", "next(numbers)", "`numbers`, a generator that cannot travel"),
    "an object that holds a lock": (
        "import threading\nclass Holder:\n    def __init__(self):\n        self.lock = threading.Lock()\nholder = Holder()",
        "holder.lock",
        "`holder`, a Holder that cannot travel",
    ),
}


@pytest.mark.parametrize(("top", "use", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_travel_is_named_at_the_call(run_python, top, use, error):
    head = f'import gristmill\napp = gristmill.App("jobs.db")\n{top}\n'
    source = f"{head}def call(x):\n    return [x, {use}]\nprint(list(app.map(call, [1])))\n"
    ended = run_python(source, check=False)
    assert ended.returncode == 1 and f"TypeError: the function refers to {error}" in ended.stderr
    assert "make it inside the function" in ended.stderr
    # A value that no mapped function refers to is in nobody's way.
    assert run_python(source.replace(f"[x, {use}]", "[x]")).stdout == "[[1]]\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("way", ["list(app.map(call, [2, 3]))", "[app.executor(1).submit(call, x).result(60) for x in (2, 3)]"])
def test_a_function_may_use_multiprocessing_with_others_of_its_script(run_python, method, way):
    ended = run_python(
        f"""
        import dataclasses, gristmill, multiprocessing
        app = gristmill.App("jobs.db")
        factor = 10
        @dataclasses.dataclass
        class Box:
            side: int
        def area(box):
            return Box(factor * box.side)
        def call(x):
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                return [box.side for box in pool.map(area, [Box(x), Box(1)])]
        print({way})
        """,
    )
    assert ended.stdout == "[[20, 10], [30, 10]]\n"


def test_what_cannot_go_to_a_spawned_process_is_named_in_the_job(run_python):
    ended = run_python(
        """
        import gristmill, multiprocessing, threading
        app = gristmill.App("jobs.db")
        lock = None
        def inner(x):
            return lock
        def call(x):
            global lock
            lock = threading.Lock()
            process = multiprocessing.get_context("spawn").Process(target=inner, args=(1,))
            process.start()
        print(list(app.map(call, [1])))
        """,
        check=False,
    )
    assert "TypeError: a process that multiprocessing spawns cannot have `lock`, a lock that" in ended.stderr


def test_how_much_a_script_logs_is_so_in_its_workers(run_python):
    ended = run_python(
        """
        import gristmill, logging
        logging.basicConfig(level="INFO", format="%(levelname)s|%(message)s")
        app = gristmill.App("jobs.db")
        @app.job
        def say(x):
            logging.getLogger("shop").info("says %s", x)
        handle = say.submit(1)
        app.drain()
        print(handle.log())
        """
    )
    assert ended.stdout == "INFO|says 1\n\n"
