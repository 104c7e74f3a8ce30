"""The tasks of the site."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def add(left, right=1):
    return left + right


@task(takes_context=True, queue_name="mail")
def send(context, address):
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    return [address, context.attempt]


@task(priority=5)
async def reply(text):
    return text.upper()
