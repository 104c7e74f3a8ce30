"""The command line: `gristmill` and `python -m gristmill`.

`gristmill worker MODULE:APP` runs the jobs of an application in Python, and `gristmill flow upgrade MODULE:APP FLOW` replays its
flows. All else is the program that the wheel carries.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ._app import App
    from ._flow.upgrade import Upgraded

_APPLICATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def main() -> int:
    """Runs the command line."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["worker"] and any(_is_application(word) for word in arguments[1:]):
        return work(arguments[1:])
    if arguments[:2] == ["flow", "upgrade"]:
        return upgrade(arguments[2:])
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


def upgrade(arguments: list[str]) -> int:
    """Runs `gristmill flow upgrade MODULE:APP FLOW`."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="gristmill flow upgrade",
        description="Replays flows that have not ended against new code, without running any step. Those that the code fits go on by"
        " it. The others are printed and held: paused by the reason `flow upgrade`, until a later upgrade finds that its code fits them,"
        " or `gristmill resume JOB --reason 'flow upgrade'`. It waits up to 60 s for instances that run, and holds those that run longer."
        " Run it before workers with the new code start.",
        epilog="Exit status: 0 if the code fits all; 1 if some are held, or would be; 2 if the request is wrong; 3 if it failed in its"
        " midst, with all instances held. "
        "Example: gristmill flow upgrade shop:app order --from 1 --dry-run",
    )
    parser.add_argument("application", metavar="MODULE:APP", help="where the application is, such as shop:app")
    parser.add_argument("flow", metavar="FLOW", help="the name of the flow")
    parser.add_argument("flows", metavar="JOB", nargs="*", help="only these instances, such as 42:7; all by default")
    parser.add_argument("--from", required=True, dest="version", metavar="VERSION", help="the version of the instances")
    parser.add_argument("--dry-run", action="store_true", help="only print which would be held")
    parser.add_argument("--json", action="store_true", help="print one JSON line for each instance that is held")
    options = parser.parse_args(arguments)
    try:
        app = find_application(options.application)
    except SystemExit as error:
        parser.error(str(error.code).removeprefix("error: "))
    from ._flow.job import FlowJob

    name = f"{options.flow}@{options.version}" if options.version else options.flow
    job = app.jobs.get(name)
    if not isinstance(job, FlowJob):
        flows = sorted(name for name, job in app.jobs.items() if isinstance(job, FlowJob))
        known = f"the application has {', '.join(flows)}" if flows else "the application has no flows"
        parser.error(f"no flow of the application goes on with {name!r}: name the version in upgrades= of the flow; {known}")
    from ._errors import GristmillError
    from ._flow.upgrade import UpgradeFailed

    try:
        told = job.upgrade(*options.flows, dry_run=options.dry_run)
    except UpgradeFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except (GristmillError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"interrupted: {str(interrupt) or 'nothing was changed'}", file=sys.stderr)
        return 130
    try:
        _print_upgraded(name, told, options.dry_run, options.json)
    except BrokenPipeError:
        # Python writes what is left at its end, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if told.differences or told.running else 0


def _print_upgraded(name: str, told: Upgraded, is_dry: bool, as_json: bool) -> None:
    import json

    rows: list[tuple[str, str, list[str]]] = [*told.differences, *((flow, "it runs, and was not replayed", []) for flow in told.running)]
    for flow, problem, unused in rows:
        if as_json:
            print(json.dumps({"flow": flow, "problem": problem, "unused": unused}))
        else:
            print(flow, problem, *([f"(not asked for up to there: {', '.join(unused)})"] if unused else []))
    held = len(rows)
    fit = told.instances - len(told.differences)
    words = ("would go on", "would be held") if is_dry else ("go on", "are held, paused by the reason `flow upgrade`")
    print(f"{name}: {fit:,} {words[0]}, {held:,} {words[1]}", file=sys.stderr, flush=True)
    sys.stdout.flush()


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
