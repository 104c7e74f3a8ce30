# The fork server: an interpreter that has read this program, and forks a process for each runner.
#
# A request has 8 bytes: its kind and a process id. FORK comes with the new process's descriptors, and the answer is its
# process id, or an error number below zero. REAP names a process that has ended, and the answer is its wait status.

FORKS_FD = 8
FORK, REAP = 1, 2
# The numbers of the descriptors in a child, in the order in which they come with FORK.
CHILD_FDS = (1, REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, BELL_FD, QUESTIONS_FD, ANSWERS_FD)
# Modules of the Python package that only define functions and classes, as standard modules do.
PACKAGE_MODULES = ("gristmill._app", "gristmill._process", "gristmill._packing")


def first_imports(script):
    """The modules that a script imports before it does anything else, as long as they are standard ones or the package's."""
    import _ast

    standard = getattr(sys, "stdlib_module_names", ())
    folder = os.path.dirname(script)
    library = os.path.dirname(os.__file__)
    before = sys.path[: sys.path.index(library)] if library in sys.path else sys.path
    for path in [folder, *before]:
        # A module of the same name that comes first could be loaded in place of a standard one.
        if os.path.isdir(path) and any(name.partition(".")[0] in standard for name in os.listdir(path)):
            return
    with open(script, "rb") as file:
        tree = compile(file.read(), script, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    for statement in tree.body:
        if isinstance(statement, _ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, _ast.ImportFrom) and statement.level == 0:
            names = [statement.module]
        elif isinstance(statement, _ast.Expr) and isinstance(statement.value, _ast.Constant):
            continue
        else:
            return
        for name in names:
            if name.partition(".")[0] not in standard and name not in PACKAGE_MODULES:
                return
            yield name


def prepare(script):
    """Imports what each child needs, but nothing of the script's own: it may start threads, open connections or draw
    random numbers, and none of these can be shared by forks."""
    import contextvars, faulthandler, gc, importlib.util, inspect, traceback, types  # noqa: F401, E401

    own = sys.path[:1] == [""]
    if own:
        del sys.path[0]
    try:
        for name in first_imports(script):
            __import__(name)
    except BaseException:
        # The import in the child tells what is wrong.
        pass
    if own:
        sys.path.insert(0, "")
    gc.collect()
    if hasattr(gc, "freeze"):
        # Collections in a child do not copy the pages of what is here now.
        gc.freeze()


def serve_forks(script):
    """Returns in each forked child. The server itself ends in here."""
    import _socket

    prepare(script)
    try:
        if len(os.listdir("/proc/self/task")) != 1:
            # A fork has only one of the threads. Processes start one by one then.
            os._exit(0)
    except OSError:
        os._exit(0)
    server = _socket.socket(fileno=FORKS_FD)
    # Received descriptors must not get the numbers that they are to have in the child.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in CHILD_FDS:
        os.dup2(null, fd)
    space = _socket.CMSG_SPACE(4 * len(CHILD_FDS))
    server.send(struct.pack("<i", 0))
    while True:
        request, ancillary = server.recvmsg(8, space)[:2]
        if len(request) != 8:
            os._exit(0)
        kind, pid = struct.unpack("<II", request)
        if kind == REAP:
            answer = os.waitpid(pid, 0)[1]
        else:
            fds = struct.unpack("%di" % len(CHILD_FDS), ancillary[0][2])
            try:
                answer = os.fork()
            except OSError as error:
                answer = -error.errno
            if answer == 0:
                os.setpgid(0, 0)
                server.close()
                os.close(null)
                for fd, number in zip(fds, CHILD_FDS):
                    os.dup2(fd, number)
                    os.close(fd)
                os.dup2(1, 2)
                return
            for fd in fds:
                os.close(fd)
            if answer > 0:
                try:
                    # The receiver of this id can signal the group at once.
                    os.setpgid(answer, answer)
                except OSError:
                    pass
        server.send(struct.pack("<i", answer))


