# How a process ends, and a fork of it: as the interpreter would end, but without freeing what it shares with others, since
# that would copy it first.

# Modules that lie there are not the script's own.
FOLDERS_OF_OTHERS = ("site-packages", "dist-packages")


class OutOfTime(KeyboardInterrupt):
    """Interrupts what does not end in time. A KeyboardInterrupt, since event loops pass it on."""


class Ending:
    """The end of a process: what it has to do, under one limit. Says what could not be done."""

    def __init__(self, limit_ms, say):
        self.limit_ms = limit_ms
        self.say = say
        self.is_late = False
        self.print_unraisable = sys.unraisablehook

    def run(self, *steps):
        """Runs the steps, each although the one before it fails. At the limit what runs is interrupted, and then what runs
        each second."""
        import signal

        sys.unraisablehook = self.say_unraisable
        try:
            signal.signal(signal.SIGALRM, self.interrupt)
            signal.setitimer(signal.ITIMER_REAL, self.limit_ms / 1000, 1)
        except Exception:
            # Without it, Gristmill ends the process.
            pass
        for step in steps:
            try:
                step()
            except OutOfTime:
                pass
            except BaseException as error:
                self.say("%s: %s" % (type(error).__name__, error))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException:
            pass

    def interrupt(self, number, frame):
        if not self.is_late:
            self.is_late = True
            threads = ", ".join(thread.name for thread in lasting_threads())
            beside = ", and these threads had not ended, which are no daemons: " + threads if threads else ""
            self.say("after %d ms it was still in %s%s" % (self.limit_ms, place_of(frame), beside))
        raise OutOfTime

    def say_unraisable(self, problem):
        """What an exit handler or a destructor raises reaches nobody else."""
        if not issubclass(problem.exc_type, OutOfTime):
            self.say("%s: %s (%s)" % (problem.exc_type.__name__, problem.exc_value, problem.object))
        self.print_unraisable(problem)


def lasting_threads():
    """The threads for whose end the interpreter waits."""
    own = threading.current_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not own and thread.is_alive()]


def place_of(frame):
    """The outermost function of others in a stack that began in this file."""
    place = frame
    while frame is not None and frame.f_code.co_filename != SHIM_NAME:
        place, frame = frame, frame.f_back
    return "%s (%s:%d)" % (place.f_code.co_name, place.f_code.co_filename, place.f_lineno)


def run_exit_handlers():
    """The hooks of threads, and what the script and its modules registered: log handlers, temporary files, multiprocessing."""
    import atexit

    try:
        threading._shutdown()
    finally:
        atexit._run_exitfuncs()


def flush_files(say):
    """Writes what the files of the script still hold. The interpreter would do so as it frees them, without a word of errors."""
    import _io, gc

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    # Texts before what they are written to.
    for kinds in ((_io.TextIOWrapper,), (_io.BufferedWriter, _io.BufferedRandom)):
        for file in gc.get_objects():
            # Not isinstance, which may ask an object that stands for another one.
            if not any(kind in type(file).__mro__ for kind in kinds):
                continue
            try:
                if not file.closed and file.writable():
                    file.flush()
            except Exception as error:
                say("the file %r: %s" % (getattr(file, "name", None), error))


def own_modules():
    """The names of the modules that are the script's own."""
    library = os.path.dirname(os.__file__) + os.sep
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or path.startswith(library):
            continue
        if not any(folder in path for folder in FOLDERS_OF_OTHERS):
            yield name


def free_modules():
    """Frees the modules of the script, and with them what closes as it is freed: compressed files, archives, connections."""
    import gc
    import weakref

    threading.excepthook = lambda problem: None
    # As the interpreter does it: what nobody else refers to is freed while it still has its globals.
    modules = [weakref.ref(sys.modules.pop(name)) for name in list(own_modules())]
    gc.collect()
    for module in [reference() for reference in modules]:
        for key in list(module.__dict__) if module is not None else ():
            if key != "__builtins__":
                module.__dict__[key] = None
    gc.collect()


def flush_native_files():
    """Writes what the C library's files hold, where native code of others may have printed."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".so") and any(folder in path for folder in FOLDERS_OF_OTHERS):
            import ctypes

            ctypes.CDLL(None).fflush(None)
            return


def leave_fork(error):
    """Ends a fork of this process, in which the script's code has ended or raised: as the end of a program would, and with its status."""
    status = 0
    try:
        if isinstance(error, SystemExit):
            status = error.code
            if status is None:
                status = 0
            elif not isinstance(status, int):
                print(status, file=sys.stderr)
                status = 1
        elif error is not None:
            status = 1
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == SHIM_NAME:
                trace = trace.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
        else:
            print("a fork of the process came to the end of the script's code, and ends: its value is dropped", file=sys.stderr)
        run_exit_handlers()
        flush_files(lambda problem: print(problem, file=sys.stderr))
        free_modules()
    except BaseException:
        # The status counts.
        pass
    finally:
        os._exit(status & 0xFF)


