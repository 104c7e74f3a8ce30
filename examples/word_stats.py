"""Word statistics of texts: how many words, how many different ones, how long, which are the commonest.

    gristmill run examples/word_stats.py --input items.jsonl --output results.jsonl

An item is a text, or an object with the text under "text" (as in a CSV with that column). Gristmill
calls `main` once an item, in processes that stay warm: what is at the top of this file runs once a
process, so compiled patterns, models and connections belong there.
"""
import re
from collections import Counter

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
COMMONEST = 3


def main(payload):
    text = payload.get("text") if isinstance(payload, dict) else payload
    if not isinstance(text, str):
        # An exception fails this item alone. Trying again would not help, so it says so: without
        # `permanent`, the item would be tried again as --retries and --backoff say.
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
