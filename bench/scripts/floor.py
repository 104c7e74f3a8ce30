"""The floor for a Python script: `floor.py INPUT OUTPUT` runs the same function over the same lines, alone.

No queue, no store, no second process: parse, call, serialise, write, and one fsync at the end.
"""

import json
import os
import sys

from identity import main

with open(sys.argv[1], encoding="utf-8") as lines, open(sys.argv[2], "w", encoding="utf-8") as output:
    for line in lines:
        output.write(json.dumps(main(json.loads(line))) + "\n")
    output.flush()
    os.fsync(output.fileno())
