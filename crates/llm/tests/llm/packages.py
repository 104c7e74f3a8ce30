"""Drives the stand-in by the providers' own packages: packages.py BASE_URL, with the version at its end."""
import io, json, sys, urllib.request

import anthropic
import openai

base_url = sys.argv[1]
root = base_url.removesuffix("/v1")
open_ai = openai.OpenAI(api_key="k", base_url=base_url, max_retries=0)
claude = anthropic.Anthropic(api_key="k", base_url=root, max_retries=0)


def stand_in(**told):
    request = urllib.request.Request(root + "/stand-in", json.dumps(told).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        json.load(answer)


def check(is_true, what):
    if not is_true:
        raise AssertionError(what)


def user(text):
    return [{"role": "user", "content": text}]


# Live.
answer = open_ai.chat.completions.create(model="m", messages=user("bees"))
check(answer.choices[0].message.content == "BEES" and answer.usage.completion_tokens == 2, answer)
answer = claude.messages.create(model="m", max_tokens=9, messages=user("bees"))
check(answer.content[0].text == "BEES" and answer.usage.output_tokens == 2 and answer.stop_reason == "end_turn", answer)
try:
    claude.messages.create(model="m", max_tokens=9, messages=[])
    raise AssertionError("no messages")
except anthropic.BadRequestError:
    pass
check(list(open_ai.models.list()) == [] and list(claude.models.list()) == [], "models")


def upload(count, metadata):
    lines = [
        {"custom_id": f"r-{n}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": user(f"text {n}")}}
        for n in range(count)
    ]
    file = io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())
    file = open_ai.files.create(file=("requests.jsonl", file), purpose="batch")
    return open_ai.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata=metadata
    )


def lines(file_id):
    return [json.loads(line) for line in open_ai.files.content(file_id).content.split(b"\n") if line]


def create(count):
    return claude.messages.batches.create(
        requests=[{"custom_id": f"r-{n}", "params": {"model": "m", "max_tokens": 9, "messages": user(f"text {n}")}} for n in range(count)]
    )


# Batches that complete.
first = upload(3, {"name": "ours"})
check(first.status == "in_progress" and first.metadata == {"name": "ours"} and first.output_file_id is None, first)
check([batch.id for batch in open_ai.batches.list()] == [first.id], "the list")
batch = create(3)
check(batch.processing_status == "in_progress" and batch.request_counts.processing == 3 and batch.results_url is None, batch)
check([one.id for one in claude.messages.batches.list()] == [batch.id], "the list")
try:
    claude.messages.batches.results(batch.id)
    raise AssertionError("results before the end")
except anthropic.AnthropicError:
    pass
stand_in(advance_s=500)
first = open_ai.batches.retrieve(first.id)
check(first.status == "completed" and first.request_counts.completed == 3, first)
results = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in lines(first.output_file_id)}
check(results == {f"r-{n}": f"TEXT {n}" for n in range(3)}, results)
batch = claude.messages.batches.retrieve(batch.id)
check(batch.processing_status == "ended" and batch.request_counts.succeeded == 3, batch)
results = {one.custom_id: one.result.message.content[0].text for one in claude.messages.batches.results(batch.id)}
check(results == {f"r-{n}": f"TEXT {n}" for n in range(3)}, results)

# Batches that expire, half done.
stand_in(done_share=0.5)
expired, batch = upload(2, None), create(2)
stand_in(advance_s=90_000, done_share=1.0)
expired = open_ai.batches.retrieve(expired.id)
check(expired.status == "expired", expired)
check([line["error"]["code"] for line in lines(expired.error_file_id)] == ["batch_expired"], "the error file")
check(len(lines(expired.output_file_id)) == 1, "the output file")
kinds = sorted(one.result.type for one in claude.messages.batches.results(batch.id))
check(kinds == ["expired", "succeeded"], kinds)

# Batches that are cancelled.
cancelled, batch = upload(2, None), create(2)
check(open_ai.batches.cancel(cancelled.id).status in ("cancelling", "cancelled"), "cancel")
claude.messages.batches.cancel(batch.id)
batch = claude.messages.batches.retrieve(batch.id)
check(batch.request_counts.canceled == 1 and batch.request_counts.succeeded == 1, batch)

# Pages.
check(len(list(open_ai.batches.list(limit=1))) == 3 and len(list(claude.messages.batches.list(limit=1))) == 3, "pages")
print("all is well")
