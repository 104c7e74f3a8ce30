"""Submits a job by the client of openapi-python-client, and prints its value."""

import os

from gristmill_client import Client
from gristmill_client.api.jobs import submit
from gristmill_client.models import Awaited, RetryOptions, SubmitRequest, SubmitTagsMap

request = SubmitRequest(
    kind="double",
    payload=21,
    priority="high",
    retry=RetryOptions(attempts_max=2),
    tags=SubmitTagsMap.from_dict({"team": "red"}),
)
awaited = submit.sync(client=Client(base_url=os.environ["GRISTMILL_URL"]), body=request, wait="30s")
assert isinstance(awaited, Awaited), awaited
print(awaited.results[0]["value"])
