"""`lines.py SCRIPT`: runs a script's `main` on every line of standard input, as GNU parallel's --pipe needs it."""

import importlib
import json
import sys

main = importlib.import_module(sys.argv[1]).main
for line in sys.stdin:
    sys.stdout.write(json.dumps(main(json.loads(line))) + "\n")
