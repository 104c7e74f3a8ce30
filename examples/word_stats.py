"""Word statistics of texts: the number of words and of distinct words, their mean length, the commonest words.

    gristmill run examples/word_stats.py --input items.jsonl --output results.jsonl

An item is a text, or an object with the text under "text" (as in a CSV with that column). Gristmill
calls `main` once for each item, in processes that stay warm. The top of this file runs once in each
process, so compiled patterns, models and connections belong there.
"""
import re
from collections import Counter

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
COMMONEST = 3


def main(payload):
    text = payload.get("text") if isinstance(payload, dict) else payload
    if not isinstance(text, str):
        # An exception fails this item alone. `permanent` prevents retries, which could not help.
        error = ValueError(f"an item is a text or has one under 'text'; this one is {type(payload).__name__}")
        error.permanent = True
        raise error
    words = [word.lower() for word in WORD.findall(text)]
    counts = Counter(words)
    letters = sum(map(len, words))
    return {
        "words": len(words),
        "different": len(counts),
        "mean_length": round(letters / len(words), 2) if words else None,
        "longest": max(words, key=len, default=None),
        "commonest": [word for word, _ in counts.most_common(COMMONEST)],
    }
