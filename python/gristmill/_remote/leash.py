"""Becomes a program that the kernel kills when the thread ends that started it: `leash.py PROCESS PROGRAM ARGUMENT…`.

`PROCESS` is the id of the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# Of prctl(2): the signal at the end of the parent's thread, which execve keeps.
_SET_PARENT_DEATH_SIGNAL = 1


def main(parent: int, command: list[str]) -> None:
    """Ties this process to its parent, and becomes the program."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not tell of the parent's end")
    # Programs inherit the signals that their parent ignores or blocks, as Ray's processes do.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # The parent may have ended before the kernel was asked.
    if os.getppid() == parent:
        os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
