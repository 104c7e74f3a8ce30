# How a process starts.


def start():
    os.close(SHIM_FD)
    is_forked = sys.argv[1:2] == ["fork-server"]
    if is_forked:
        serve_forks(sys.argv[2])
    serve_requests()
    if is_forked:
        end_fork()


def serve_requests():
    for fd in (REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, BELL_FD):
        os.set_inheritable(fd, False)
    requests = Requests()
    request = None
    while request is None:
        if not requests.fill():
            return
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
    try:
        process.import_script(hello["script"])
    except BaseException as error:
        process.outbox.send_json(REFUSED, process.describe(error))
        return
    os.register_at_fork(after_in_child=process.leave_in_fork)
    # The flusher waits at most this long for a job that computes; the default of 5 ms is too long.
    sys.setswitchinterval(0.001)
    threading.Thread(target=process.flush_now_and_then, name="gristmill-flusher", daemon=True).start()
    process.outbox.send_json(READY, {"runtime": "Python " + sys.version.split()[0], "is_async": process.is_async})
    process.serve()


start()
