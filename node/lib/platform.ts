// The platform of this process, as the names of addons and of programs have it.

/** What is asked of the global `process`. @internal */
export interface Process {
  platform: string;
  arch: string;
  env: Record<string, string | undefined>;
  getBuiltinModule?<Name extends keyof Builtins>(name: Name): Builtins[Name];
  report?: { getReport(): unknown };
}

/** The modules of Node that the package uses. @internal */
export interface Builtins {
  'node:module': { createRequire(from: string): Require };
  'node:child_process': {
    spawn(program: string, words: string[], options: { stdio: 'inherit' }): Child;
    fork(module: URL, words: string[], options: { execArgv: string[]; serialization: 'advanced'; stdio: string[] }): Fork;
  };
  'node:tty': { isatty(descriptor: number): boolean };
  'node:worker_threads': { Worker: new (code: string, options: { eval: true; workerData: unknown }) => { unref(): void } };
  'node:os': { availableParallelism(): number };
  'node:url': { pathToFileURL(path: string): URL };
  'node:buffer': { Buffer: unknown };
  'node:async_hooks': { AsyncLocalStorage: new <T>() => { run<R>(store: T, task: () => R): R; getStore(): T | undefined } };
  'node:crypto': {
    randomBytes(count: number): { readUIntBE(offset: number, bytes: number): number };
    createHash(name: 'sha256'): { update(text: string): { digest(): Uint8Array } };
  };
}

/** Loads a module, or finds its file. @internal */
export interface Require {
  (path: string): unknown;
  resolve(path: string): string;
}

/** A process that was started. @internal */
export interface Child {
  kill(signal: string): boolean;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: (code: number | null, signal: string | null) => void): unknown;
}

/** A process of this runtime, which messages reach. @internal */
export interface Fork extends Child {
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: (code: number | null, signal: string | null) => void): unknown;
  on(event: 'message', listener: (message: unknown) => void): unknown;
  send(message: unknown, sent: (error: Error | null) => void): boolean;
  unref(): void;
  channel?: { unref?(): void } | null;
}

/** A module of the runtime; undefined where there is none, such as in a browser. @internal */
export function builtinModule<Name extends keyof Builtins>(name: Name): Builtins[Name] | undefined {
  return (globalThis as { process?: Process }).process?.getBuiltinModule?.(name);
}

/** The platform, such as "linux-x64-gnu". @internal */
export function platformOf(process: Process): string {
  if (process.platform !== 'linux') return `${process.platform}-${process.arch}`;
  let report: { header?: { glibcVersionRuntime?: string } } | undefined;
  try {
    report = process.report?.getReport() as typeof report;
  } catch {
    // Deno asks for a permission.
    return `linux-${process.arch}-gnu`;
  }
  return `linux-${process.arch}-${report?.header?.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`;
}
