"""Enqueues jobs on a peer, and prints the commands of its workers as JSON: `enqueue.py MODULE COUNT PROCESSES`."""

import importlib
import json
import sys

if __name__ == "__main__":
    module, count, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    peer = importlib.import_module(module)
    peer.enqueue(count)
    print(json.dumps(peer.workers(sys.executable, processes)))
