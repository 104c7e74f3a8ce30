"""The measurements, in a file, so that an interrupted benchmark can go on."""

import json
from dataclasses import asdict

from harness.contenders import Sample


class Kept:
    """Samples by measurement and contender, and the report's notes. `what` tells one program and plan from another."""

    def __init__(self, path, what):
        self.path = path
        self.what = [list(pair) for pair in what]
        self.samples = {}
        self.notes = {}

    def read(self):
        """Takes the measurements of the file, if they are of the same program and plan."""
        content = json.loads(self.path.read_text()) if self.path.exists() else {}
        if content.get("what") != self.what:
            return
        self.notes = content["notes"]
        for measurement, contenders in content["samples"].items():
            self.samples[measurement] = {
                name: [Sample(**sample) for sample in samples] for name, samples in contenders.items()
            }

    def add(self, measurement, samples, notes):
        """Adds one measurement and writes the file."""
        self.samples[measurement] = samples
        self.notes.update(notes)
        texts = {
            own: {name: [asdict(sample) for sample in all_of_it] for name, all_of_it in contenders.items()}
            for own, contenders in self.samples.items()
        }
        # The file is whole, even if this program is killed.
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({"what": self.what, "samples": texts, "notes": self.notes}, indent=1))
        partial.replace(self.path)
