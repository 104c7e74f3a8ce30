"""Submits jobs by the client of openapi-python-client, reads refusals and failures, and prints a job's value."""

import json
import os

from gristmill_client import Client
from gristmill_client.api.jobs import job, results, submit
from gristmill_client.models import Awaited, JobView, Refusal, RetryOptions, SubmitRequest, SubmitTagsMap

client = Client(base_url=os.environ["GRISTMILL_URL"])
request = SubmitRequest(
    kind="double",
    payload=21,
    priority="high",
    retry=RetryOptions(attempts_max=2),
    tags=SubmitTagsMap.from_dict({"team": "red"}),
)
awaited = submit.sync(client=client, body=request, wait="30s")
assert isinstance(awaited, Awaited), awaited
[result] = awaited.results
shown = job.sync(result["job"], client=client)
assert isinstance(shown, JobView) and shown.state == "completed" and shown.kind == "double", shown

refused = submit.sync(client=client, body=SubmitRequest(kind=""))
assert isinstance(refused, Refusal) and refused.code and refused.remedy and "kind" in refused.error, refused
missing = job.sync("999999:0", client=client)
assert isinstance(missing, Refusal) and missing.code, missing

failing = submit.sync(client=client, body=SubmitRequest(kind="double", payload={}, retry=RetryOptions(attempts_max=1)), wait="30s")
assert isinstance(failing, Awaited) and failing.results[0]["state"] == "dead", failing
lines = results.sync_detailed(client=client, batches=failing.results[0]["job"].split(":")[0]).content.splitlines()
assert [json.loads(line)["error"]["type"] for line in lines] == ["TypeError"], lines
print(result["value"])
