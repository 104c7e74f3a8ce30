"""Transformer encoders with random weights, one text a call and in batches; nothing is downloaded."""

import functools
import zlib

# Layers, width, heads and inner width of all-MiniLM-L6-v2 and of BERT base. Both have a vocabulary of 30,522 words.
SHAPES = {"MiniLM": (6, 384, 12, 1536), "BERT-base": (12, 768, 12, 3072)}
VOCABULARY, TOKENS_MAX = 30_522, 256
WORDS = "the mill grinds what the farmer brings and the queue is short in spring when little grain is left".split()


def texts(count):
    """Of 8 to 63 words."""
    return [" ".join(WORDS[(number + at) % len(WORDS)] for at in range(8 + number * 7 % 56)) + f" {number}" for number in range(count)]


@functools.cache
def model(name):
    """Once a process."""
    import torch
    from transformers import BertConfig, BertModel

    layers, width, heads, inner = SHAPES[name]
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=VOCABULARY, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=inner
    )
    is_gpu = torch.cuda.is_available()
    made = BertModel(config, add_pooling_layer=False).eval()
    return (made.half().cuda() if is_gpu else made), ("cuda" if is_gpu else "cpu")


def vectors(name, given):
    """The mean of the vectors of each text's tokens."""
    import torch

    network, device = model(name)
    tokens = [[zlib.crc32(word.encode()) % VOCABULARY for word in text.split()[:TOKENS_MAX]] for text in given]
    longest = max(map(len, tokens))
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in tokens])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in tokens])
    with torch.inference_mode():
        ids, mask = ids.to(device), mask.to(device)
        found = network(input_ids=ids, attention_mask=mask).last_hidden_state
        mean = (found * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return mean.float().cpu().numpy()


def vector_minilm(text: str) -> list:
    return vectors("MiniLM", [text])[0].round(5).tolist()


def vector_bert(text: str) -> list:
    return vectors("BERT-base", [text])[0].round(5).tolist()


class Vectors:
    """Of many texts; each vector is a list of numbers with five digits."""

    name = ""

    def setup(self):
        model(self.name)

    def __call__(self, given: list) -> list:
        return vectors(self.name, given).round(5).tolist()


class VectorsMinilm(Vectors):
    name = "MiniLM"


class VectorsBert(Vectors):
    name = "BERT-base"


class VectorsMinilmPacked(VectorsMinilm):
    """The same; each vector is the base64 of its 16-bit floats."""

    def __call__(self, given: list) -> list:
        import base64

        return [base64.b64encode(row).decode() for row in vectors(self.name, given).astype("float16")]


ONE = {"MiniLM": vector_minilm, "BERT-base": vector_bert}
MANY = {"MiniLM": VectorsMinilm, "BERT-base": VectorsBert}
