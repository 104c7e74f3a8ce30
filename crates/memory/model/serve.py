"""An OpenAI-compatible llama.cpp server on loopback, with the model in the file that is named. Prints its address, and
ends with its standard input."""

import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx = 8192
parameters.n_parallel = 1
# Threads that wait for each other by polling make each other slow where other programs run too.
parameters.cpuparams.n_threads = 1
parameters.cpuparams.poll = 0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
