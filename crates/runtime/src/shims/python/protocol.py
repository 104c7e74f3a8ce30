# Gristmill's side of a warm Python process: imports the script once, then runs a stream of jobs.
# The protocol is described in protocol.rs. Python 3.8 and newer.
import io
import itertools
import json
import mmap
import os
import select
import struct
import sys
import threading
import time

REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, SHIM_FD, BELL_FD, QUESTIONS_FD, ANSWERS_FD = 3, 4, 5, 6, 7, 9, 10
HELLO, RUN, READY, REFUSED, OUTCOMES = 1, 2, 17, 18, 19
FINALIZING, FAR = 1, 4
# What a job asks about itself.
ABOUT_FLOW, ABOUT_PREREQUISITES = 1, 2
ANSWER_BYTES_READ = 1 << 16
# Words of the control page, and how well this process keeps BEGUN.
LIMIT, QUESTIONS, OVERDUE, BEGUN, MANNER = 0, 1, 2, 3, 4
BEGUN_TO, BEGUN_LAST = 1, 2
SHIM_NAME = "<gristmill>"
ERROR_MESSAGE_CHARACTERS_MAX = 4096
PROGRESS_MESSAGE_CHARACTERS_MAX = 400
# Exceptions of one failure that are looked at.
ERRORS_MAX = 1000
PROGRESS_MAX = (1 << 63) - 1
# Bytes of finished outcomes that are sent at once, however little time has passed.
UNSENT_BYTES_MAX = 1 << 20
# Outcomes of asynchronous jobs that are sent at once, although the loop's turn is not over.
UNSENT_JOBS_MAX = 256
DURATION_US_MAX = 0xFFFFFFFF
# A job that started a program ran at least this long.
MARK_AFTER_NS = 1000000
REQUESTS_BYTES = 1 << 18
# Modules whose files are named, so that their changes are noticed.
OWN_FILES_MAX = 1000
# The time between two looks for them, in times of how long a look takes.
LOOK_REST = 100
# Records among the output, and how many bytes each holds at most.
ENDED, PRINTED, DROPPED, PRINTED_TO_ERROR = 0, 1, 2, 3
RECORD_BYTES_MAX = 4096 - 22

now_ns = time.perf_counter_ns


