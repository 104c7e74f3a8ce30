"""The command line: `gristmill` and `python -m gristmill`.

`gristmill worker MODULE:APP` runs the jobs of an application in Python. All else is the program that the wheel carries.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ._app import App

_APPLICATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def main() -> int:
    """Runs the command line."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["worker"] and any(_is_application(word) for word in arguments[1:]):
        return work(arguments[1:])
    if arguments[:1] == ["worker"]:
        if {"-h", "--help"} & set(arguments):
            print("For the jobs of an application in Python: gristmill worker MODULE:APP --help\n", flush=True)
        for word in arguments[1:]:
            if not os.path.exists(word) and os.path.isfile(f"{word}.py"):
                sys.exit(f"error: {word} is neither MODULE:APP, such as {word}:app, nor a script, such as {word}.py")
    run_program(arguments)


def _is_application(word: str) -> bool:
    return _APPLICATION.fullmatch(word) is not None and not os.path.exists(word)


def run_program(arguments: list[str]) -> NoReturn:
    """Becomes the program that the wheel carries."""
    from ._process import program_path

    program = program_path()
    if program is None:
        sys.exit("error: this installation has no program: install the wheel, or build one with `make python`")
    os.execv(program, ["gristmill", *arguments])


def work(arguments: list[str]) -> int:
    """Runs `gristmill worker MODULE:APP`."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="gristmill worker",
        description="Runs the jobs of an application in Python, until Ctrl-C or SIGTERM.",
        epilog="Example: gristmill worker shop:app -j 8",
    )
    parser.add_argument("application", metavar="MODULE:APP", help="where the application is, such as shop:app")
    parser.add_argument("-j", "--concurrency", type=int, metavar="N", help="processes for each job; the number of processors by default")
    parser.add_argument("-q", "--queue", action="append", dest="queues", metavar="QUEUE", help="only this queue; may be repeated")
    parser.add_argument("--job", action="append", dest="jobs", metavar="JOB", help="only the jobs of this name; may be repeated")
    parser.add_argument("--name", help="the worker's name, for people")
    parser.add_argument(
        "--until-empty", "--drain", action="store_true", help="end when nothing is left to run, now or later; --drain is the same"
    )
    parser.add_argument("--until-idle", action="store_true", help="end when nothing can be run now")
    options = parser.parse_args(arguments)
    if options.concurrency is not None and options.concurrency < 1:
        parser.error(f"-j {options.concurrency}: give a number from 1")
    app = find_application(options.application)
    until = "empty" if options.until_empty else "idle" if options.until_idle else "stopped"
    unknown = sorted(set(options.jobs or ()) - set(app.jobs))
    if unknown:
        parser.error(f"the application has no job {unknown[0]!r}; it has {', '.join(sorted(app.jobs))}")
    from ._errors import GristmillError

    try:
        app.work(options.concurrency, queues=options.queues, jobs=options.jobs, until=until, name=options.name)
    except (GristmillError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def find_application(place: str) -> App:
    """The application at MODULE:APP. The current folder is searched first."""
    import importlib

    from ._app import App

    module_name, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if module_name.endswith(".py"):
            sys.exit(f"error: {place} names a file: give its module, as in {module_name[:-3].replace(os.sep, '.')}:{attribute}")
        if error.name != module_name.partition(".")[0]:
            raise
        sys.exit(f"error: there is no module {module_name}, neither here nor installed: give MODULE:APP, such as shop:app")
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, App):
        others = [name for name, value in vars(sys.modules[module_name]).items() if isinstance(value, App)]
        known = f"; the module has {module_name}:{others[0]}" if others else ""
        sys.exit(f"error: {place} is not a gristmill.App; name the variable that holds it{known}")
    return found


if __name__ == "__main__":
    sys.exit(main())
