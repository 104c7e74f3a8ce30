# How a process starts.


def start():
    os.close(SHIM_FD)
    # A signal that stops the worker and its processes together ends this one, and does not raise an exception in a job.
    import _signal

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    is_forked = sys.argv[1:2] == ["fork-server"]
    if is_forked:
        serve_forks(sys.argv[2])
    process = serve_requests()
    if process is not None:
        process.end(is_forked)
    elif is_forked:
        os._exit(0)


def own_files():
    """The files of the imported modules, without those of the standard library and of installed packages."""
    library = os.path.dirname(os.__file__) + os.sep
    files = set()
    for module in list(sys.modules.values()):
        try:
            # A module that is loaded at its first use stays as it is.
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except Exception:
            continue
        if type(file) is not str or file.startswith(library) or "/site-packages/" in file or "/dist-packages/" in file:
            continue
        try:
            # What is no text cannot be named.
            file.encode()
        except UnicodeEncodeError:
            continue
        files.add(os.path.abspath(file))
    return sorted(files)[:OWN_FILES_MAX]


def serve_requests():
    """Runs jobs until there are no more requests; the process, if it has read anything."""
    for fd in (REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, BELL_FD, QUESTIONS_FD, ANSWERS_FD):
        os.set_inheritable(fd, False)
    requests = Requests()
    request = None
    while request is None:
        if not requests.fill():
            return None
        request = requests.next()
    hello = json.loads(bytes(request[1]))
    process = Process(hello, requests)
    try:
        # A crash in native code leaves a traceback on file descriptor 2, and with it in the job's log.
        import faulthandler

        faulthandler.enable(file=2, all_threads=False)
    except Exception:
        pass
    process.capture_output()
    os.register_at_fork(after_in_child=process.leave_in_fork)
    try:
        process.import_script(hello["script"])
    except BaseException as error:
        if process.forked:
            leave_fork(error)
        process.outbox.send_json(REFUSED, process.describe(error))
        return process
    if process.forked:
        leave_fork(None)
    # The flusher waits at most this long for a job that computes; the default of 5 ms is too long.
    sys.setswitchinterval(0.001)
    threading.Thread(target=process.flush_now_and_then, name="gristmill-flusher", daemon=True).start()
    ready = {"runtime": "Python " + sys.version.split()[0], "is_async": process.is_async, "files": process.outbox.know_files()}
    process.outbox.send_json(READY, ready)
    process.serve()
    return process


start()
