// Warm processes that run the handler of one job, which a module exports: one job at a time in each.

import type { Question } from '../backend.js';
import { GristmillError, InvalidValue, shown } from '../errors.js';
import { wholeNumber } from '../options.js';
import { type Builtins, type Fork, builtinModule } from '../platform.js';
import type { BigInts } from '../values/encode.js';
import type { Identity, JobContext } from './context.js';
import { type Described, DescribedError } from './describe.js';
import type { MicroBatch } from './micro-batch.js';
import { CANCEL_GRACE_MS, Encoded } from './runner.js';

/** Options of a job whose handler a module exports. */
export interface ModuleOptions {
  /** The module, as a URL or an absolute path: `new URL('./resize.js', import.meta.url)`. */
  module: URL | string;
  /** The name of the exported function; "default" by default. */
  export?: string;
  /** The processes, each of which runs one job at a time; as many as there are processors by default. */
  processes?: number;
}

/** A message to a process. @internal */
export interface ToProcess {
  run?: { number: number; identity: Identity; payload: unknown };
  /** The answer to the question with this number. */
  answer?: { question: number; value?: unknown; problem?: string };
  abort?: { name: string; message: string };
}

/** A message of a process about its job. @internal */
export interface FromProcess {
  /** The number of the run. Other messages of the process are not for the pool. */
  gristmill: number;
  /** The handler is called now. */
  hasBegun?: boolean;
  log?: string;
  progress?: string;
  /** What the job asks about itself. */
  question?: { number: number; about: Question };
  /** The value as JSON: the job has completed. */
  value?: string;
  /** The job has failed. */
  error?: Described;
  /** Whether the process ends after this message. */
  isLast?: boolean;
}

const PROCESSES_MAX = 1_024;
/** The time for which a process may start and load the module. */
const STARTING_MS_MAX = 60_000;
/** Processes that a job may lose before it has begun: an idle one may end at any moment, and Ctrl-C ends one that starts. */
const PROCESSES_LOST_MAX = 3;
/** Options of the runtime's command line that are about the program itself. Others, such as loaders, are the processes' too. */
const OF_PROGRAM = /^(--input-type|--inspect|--eval|--print|--test|--watch|-[ep]+$)/;
/** Those of them whose value may be a word of its own. */
const HAS_VALUE = /^(--eval|--print|-[ep]+|--input-type|--inspect-port|--watch-path|--test-[a-z-]+)$/;

interface Runtime {
  pid: number;
  execArgv: readonly string[];
  on(event: 'exit', listener: () => void): unknown;
}

const runtime = (globalThis as { process?: Runtime }).process;

function builtin<Name extends keyof Builtins>(name: Name): Builtins[Name] {
  const found = builtinModule(name);
  if (found === undefined) throw new GristmillError('`module` needs Node 20.16 or newer: give a function instead');
  return found;
}

/** The processes that this one started. A handler that computes gets no message that this process ends. */
const started = new Set<WarmProcess>();
let willEndAll = false;

function endAllAtExit(): void {
  if (willEndAll) return;
  willEndAll = true;
  runtime?.on('exit', () => {
    for (const warm of started) warm.kill();
  });
}

/** The processes of one job. @internal */
export class Pool {
  /** The number of processes, at most. */
  readonly processesMax: number;
  private readonly words: string[];
  private readonly idle: WarmProcess[] = [];
  private readonly all = new Set<WarmProcess>();
  /** Jobs that wait for a process. A worker has at most as many jobs at once as there are processes; a program may have several. */
  private readonly waiting = new Set<() => void>();

  constructor({ module, export: name = 'default', processes }: ModuleOptions, bigints: BigInts) {
    if (typeof name !== 'string' || name === '') {
      throw new InvalidValue(`\`export\` is ${shown(name)}: give the name of a function`, 'export');
    }
    this.words = [urlOf(module).href, name, bigints, String(runtime?.pid)];
    this.processesMax = wholeNumber('processes', processes ?? builtin('node:os').availableParallelism(), 1, PROCESSES_MAX);
  }

  /** Runs a job in the next free process. */
  async run(payload: unknown, job: JobContext<MicroBatch>): Promise<Encoded> {
    for (let lost = 1; ; lost++) {
      const warm = await this.take(job.signal);
      try {
        return await warm.run(payload, job);
      } catch (error) {
        if (!(error instanceof NotBegun)) throw error;
        if (lost === PROCESSES_LOST_MAX) {
          throw new DescribedError({ type: 'ProcessEnded', message: `${error.message} before the job began, ${lost} times` });
        }
      } finally {
        if (!warm.hasEnded) this.idle.push(warm);
        this.wakeNext();
      }
    }
  }

  /** Ends all processes. */
  close(): void {
    for (const warm of this.all) warm.kill();
  }

  private async take(signal: AbortSignal): Promise<WarmProcess> {
    for (;;) {
      signal.throwIfAborted();
      const warm = this.idle.pop();
      if (warm !== undefined && !warm.hasEnded) return warm;
      if (warm === undefined && this.all.size < this.processesMax) return this.start();
      if (warm === undefined) await this.free(signal);
    }
  }

  /** Waits until a process may be free, or until the job is to end. */
  private free(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.waiting.add(wake);
      signal.addEventListener('abort', wake, { once: true });
    });
  }

  private wakeNext(): void {
    const [next] = this.waiting;
    next?.();
  }

  private start(): WarmProcess {
    endAllAtExit();
    const isValue = (word: string, before = ''): boolean => HAS_VALUE.test(before) && !word.startsWith('--');
    const execArgv = runtime!.execArgv.filter((word, at, words) => !OF_PROGRAM.test(word) && !isValue(word, words[at - 1]));
    const options = { execArgv, serialization: 'advanced' as const, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] };
    const child = builtin('node:child_process').fork(new URL('./child.js', import.meta.url), this.words, options);
    const warm: WarmProcess = new WarmProcess(child, () => {
      started.delete(warm);
      this.all.delete(warm);
      this.wakeNext();
    });
    started.add(warm);
    this.all.add(warm);
    return warm;
  }
}

/** A process ended before it began the job that it was given. */
class NotBegun extends Error {}

/** One process. */
class WarmProcess {
  hasEnded = false;
  private runs = 0;
  private onMessage: ((message: FromProcess) => void) | null = null;
  private onEnded: ((reason: string) => void) | null = null;

  constructor(private readonly child: Fork, onEnd: () => void) {
    // The worker keeps the program alive, not its idle processes.
    child.unref();
    child.channel?.unref?.();
    const end = (reason: string): void => {
      this.hasEnded = true;
      this.onEnded?.(reason);
      onEnd();
    };
    child.on('message', (message) => {
      // The handler may send messages of its own.
      const told = message as Partial<FromProcess> | null;
      if (typeof told === 'object' && told?.gristmill === this.runs) this.onMessage?.(told as FromProcess);
    });
    child.on('error', (error) => {
      this.kill();
      end(`cannot be started or told anything: ${error.message}`);
    });
    child.on('exit', (code, signal) => end(signal === null ? `ended with status ${code}` : `was ended by ${signal}`));
  }

  kill(): void {
    this.hasEnded = true;
    this.child.kill('SIGKILL');
  }

  run(payload: unknown, job: JobContext<MicroBatch>): Promise<Encoded> {
    const { signal } = job;
    const number = ++this.runs;
    return new Promise((resolve, reject) => {
      let hasBegun = false, grace: ReturnType<typeof setTimeout> | undefined;
      const settle = (): void => {
        clearTimeout(starting);
        clearTimeout(grace);
        signal.removeEventListener('abort', abort);
        this.onMessage = null;
        this.onEnded = null;
      };
      /** Fails the job, and ends the process, which may go on with it. */
      const fail = (error: unknown): void => {
        settle();
        this.kill();
        reject(error as Error);
      };
      const starting = setTimeout(() => {
        fail(new DescribedError({ type: 'timeout', message: `the module of the handler did not load within ${STARTING_MS_MAX} ms` }));
      }, STARTING_MS_MAX);
      const abort = (): void => {
        const { name, message } = signal.reason as Error;
        if (name === 'TimeoutError') {
          this.kill();
          return;
        }
        this.send({ abort: { name, message } });
        grace = setTimeout(() => this.kill(), CANCEL_GRACE_MS);
      };
      this.onMessage = (told) => {
        if (told.hasBegun === true) {
          hasBegun = true;
          clearTimeout(starting);
          job.onBegun?.();
        }
        if (told.log !== undefined) job.log(told.log);
        try {
          if (told.progress !== undefined) job.microBatch.progress(job.place, told.progress);
        } catch (error) {
          fail(error);
          return;
        }
        if (told.question !== undefined) void this.answer(told.question, job);
        if (told.value === undefined && told.error === undefined) return;
        settle();
        if (told.isLast === true) this.kill();
        if (told.value !== undefined) resolve(new Encoded(told.value));
        else reject(new DescribedError(told.error!));
      };
      this.onEnded = (reason) => {
        settle();
        const message = `the process of the handler ${reason}`;
        reject(hasBegun || signal.aborted ? new DescribedError({ type: 'ProcessEnded', message }) : new NotBegun(message));
      };
      signal.addEventListener('abort', abort, { once: true });
      try {
        this.send({ run: { number, identity: job.identity, payload } });
        if (signal.aborted) abort();
      } catch (error) {
        // The payload cannot be copied.
        settle();
        reject(error as Error);
      }
    });
  }

  private async answer({ number, about }: NonNullable<FromProcess['question']>, job: JobContext<MicroBatch>): Promise<void> {
    try {
      this.send({ answer: { question: number, value: await job.microBatch.ask(job.place, about) } });
    } catch (error) {
      this.send({ answer: { question: number, problem: (error as Error).message } });
    }
  }

  private send(message: ToProcess): void {
    // The end of a process that gets no message is told by `exit` or `error`.
    this.child.send(message, () => {});
  }
}

function urlOf(module: URL | string): URL {
  if (module instanceof URL && module.protocol === 'file:') return module;
  if (typeof module === 'string' && module.startsWith('file:')) return new URL(module);
  if (typeof module === 'string' && module.startsWith('/')) return builtin('node:url').pathToFileURL(module);
  throw new InvalidValue(
    `\`module\` is ${shown(module)}: give the URL of a file, such as \`new URL('./resize.js', import.meta.url)\`, or an absolute path`,
    'module',
  );
}
