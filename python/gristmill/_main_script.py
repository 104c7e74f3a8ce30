"""Which names of a main script a worker's process has: it reads the script up to its first call that gives work to workers, and
leaves out what stands below `if __name__ == "__main__":`."""

from __future__ import annotations

import ast
import inspect

# The line of the main script at which work was first given to workers.
_work_line: int | None = None


def note_work() -> None:
    """Remembers the line of the main script that gives work to workers, the first time."""
    global _work_line
    if _work_line is not None:
        return
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            _work_line = frame.f_lineno
            return
        frame = frame.f_back


def names_read(path: str) -> set[str] | None:
    """The names that certainly have their values where a worker's process has read the script; None where that cannot be told."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for statement in tree.body:
        last_line = statement.end_lineno or statement.lineno
        if _work_line is not None and last_line >= _work_line:
            if not (_is_guard(statement) and statement.lineno <= _work_line):
                break
        names.update(_bound(statement))
    return names


def _is_guard(node: ast.AST) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))


def _bound(statement: ast.AST) -> set[str]:
    """The names that a statement of a module binds."""
    names: set[str] = set()
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif _is_guard(node) and isinstance(node, ast.If):
            left.extend(node.orelse)
        elif not isinstance(node, ast.Lambda):
            left.extend(ast.iter_child_nodes(node))
    return names
