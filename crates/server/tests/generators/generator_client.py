"""Submits a job by the client of openapi-generator, and prints its value."""

import os

import openapi_client as api

client = api.ApiClient(api.Configuration(host=os.environ["GRISTMILL_URL"]))
request = api.SubmitRequest(
    kind="double",
    payload=21,
    priority=api.PriorityName("high"),
    retry=api.RetryOptions(attempts_max=2),
    tags=api.SubmitTags({"team": "red"}),
)
awaited = api.JobsApi(client).submit(request, wait="30s")
print(awaited.results[0]["value"])
