  // --- starting ---

  const importScript = async () => {
    const script = await load(pathToFileURL(hello.script).href);
    main = script.main ?? script.default?.main ?? script.default;
    if (typeof main !== 'function') {
      const name = hello.script.split('/').pop();
      const error = new Error(`${name} exports no function main; write \`export function main(payload) { … }\``);
      error.name = 'NoMain';
      error.stack = '';
      throw error;
    }
    const own = script.finalize ?? script.default?.finalize;
    if (typeof own === 'function') finalize = own;
    if (types.isAsyncFunction(main)) {
      const { AsyncLocalStorage } = await load('node:async_hooks');
      contexts = new AsyncLocalStorage();
    }
  };

  // What the script starts must not get our pipes.
  const closeInherited = () => {
    const fds = [REQUESTS_FD, OUTCOMES_FD, CONTROL_FD, SHIM_FD, BELL_FD];
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
    new Worker(flusherSource, { eval: true, workerData: data }).unref();
    Atomics.wait(words, OPENED, 0);
  };

  const runtimeName = () => {
    if (globalThis.Deno) return `Deno ${Deno.version.deno}`;
    return globalThis.Bun ? `Bun ${Bun.version}` : `Node ${process.versions.node}`;
  };

  globalThis.gristmill ??= Object.freeze({ progress, job: identity, spawn, done });
  captureOutput();
  startFlusher();
  closeInherited();
  process.argv = [process.argv[0], hello.script];
  try {
    await importScript();
  } catch (error) {
    sendJson(REFUSED, describe(error));
    process.exit(1);
  }
  process.on('exit', () => flush(false));
  sendJson(READY, { runtime: runtimeName(), is_async: contexts !== null });
  await (contexts === null ? serveAlone() : serveAsync());
  process.exit(0);
})();
