"""The tasks of the site."""
# Django has no types.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUntypedFunctionDecorator=false

from typing import Any

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def add(left: int, right: int = 1) -> int:
    return left + right


@task(takes_context=True, queue_name="mail")
def send(context: Any, address: str) -> list[Any]:
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    return [address, context.attempt]


@task(priority=5)
async def reply(text: str) -> str:
    return text.upper()
