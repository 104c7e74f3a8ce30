  // --- starting ---

  const importScript = async () => {
    const script = await load(pathToFileURL(hello.script).href);
    main = script.main ?? script.default?.main ?? script.default;
    const flow = flowOf(script, main);
    if (flow === undefined && typeof main !== 'function') {
      const name = hello.script.split('/').pop();
      const error = new Error(`${name} exports no function main; write \`export function main(payload) { … }\``);
      error.name = 'NoMain';
      error.stack = '';
      throw error;
    }
    const own = script.finalize ?? script.default?.finalize;
    if (typeof own === 'function') finalize = own;
    bigints = bigintsOf(script.bigints ?? script.default?.bigints);
    let isAsync = types.isAsyncFunction(main);
    if (flow !== undefined) {
      crypto = await load('node:crypto');
      ({ main, finalize, isAsync } = entriesOf(script, flow));
      heedRejections();
    }
    if (isAsync) {
      const { AsyncLocalStorage, AsyncResource: Resource } = await load('node:async_hooks');
      contexts = new AsyncLocalStorage();
      AsyncResource = Resource;
    }
  };

  // What the script starts must not get our pipes.
  const closeInherited = () => {
    const fds = [REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, SHIM_FD, BELL_FD, QUESTIONS_FD, ANSWERS_FD];
    if (globalThis.Deno) {
      // Deno numbers its files by itself; the descriptors can be reached only through the C library.
      try {
        const libc = Deno.dlopen('libc.so.6', { close: { parameters: ['i32'], result: 'i32' } });
        fds.forEach((fd) => libc.symbols.close(fd));
        libc.close();
      } catch {
        // Another C library: a program that the script starts could write to our pipe, and would be
        // found out by the nonce.
      }
      return;
    }
    fds.forEach((fd) => fs.closeSync(fd));
  };

  const startFlusher = () => {
    const data = { memory, nonce: hello.nonce, everyMs: hello.flush_every_ms, fd: OUTCOMES_FD, controlFd: CONTROL_FD };
    const flusher = new Worker(flusherSource, { eval: true, workerData: data });
    flusher.on('message', () => Atomics.store(words, TURNED, 1));
    flusher.unref();
    Atomics.wait(words, OPENED, 0);
  };

  // How long the end waits: for what others send, for timers, and for what is under way. Milliseconds.
  const LOOK_MS = 50, OTHERS_MS_MAX = 100, TIMERS_MS_MAX = 1000;
  const OTHERS = /^(Pipe|TCP|TTY|UDP|Signal|Process|FSEvent)\w*Wrap$|^(MessagePort|Worker|StatWatcher|ChildProcess)$/;

  // Ends a process whose event loop goes on after the last job.
  const endSoon = (sinceMs) => {
    const left = new Set(process.getActiveResourcesInfo?.() ?? []);
    const busy = [...left].filter((name) => !OTHERS.test(name));
    const isIdle = busy.every((name) => name === 'Timeout');
    if (sinceMs >= hello.end_ms_max && !isIdle) {
      note({ unended: `after ${hello.end_ms_max} ms its event loop still had ${busy.join(', ')}` });
    } else if (!(sinceMs >= TIMERS_MS_MAX && isIdle) && !(sinceMs >= OTHERS_MS_MAX && left.size > 0 && busy.length === 0)) {
      return;
    }
    process.exit();
  };

  const runtimeName = () => {
    if (globalThis.Deno) return `Deno ${Deno.version.deno}`;
    return globalThis.Bun ? `Bun ${Bun.version}` : `Node ${process.versions.node}`;
  };

  globalThis.gristmill ??= Object.freeze({
    progress, job: identity, spawn, done, flow: makeFlow, FlowError, StepFailed, TimeoutError,
  });
  captureOutput();
  startFlusher();
  closeInherited();
  process.argv = [process.argv[0], hello.script];
  // What the script forks gets the rest of these, but not the text that starts this file.
  const evaluated = process.execArgv?.indexOf('-e') ?? -1;
  if (evaluated >= 0) process.execArgv.splice(evaluated, 2);
  process.prependListener('exit', () => {
    note('exiting');
    flush(false);
  });
  try {
    await importScript();
  } catch (error) {
    sendJson(REFUSED, describe(error));
    process.exit(1);
  }
  sendJson(READY, { runtime: runtimeName(), is_async: contexts !== null });
  await (contexts === null ? serveAlone() : serveAsync());
  const { setInterval: repeat } = await load('node:timers');
  const endsAt = now();
  // The rest of the event loop runs to its end, under a limit.
  repeat(() => endSoon(now() - endsAt), LOOK_MS).unref();
})();
