// For tests of programs that use the package: a store of its own, a clock that a test moves, jobs that run when they are submitted.

import { App, type AppOptions } from './app.js';
import type { Backend } from './backend.js';
import { GristmillError, type Span, milliseconds } from './errors.js';
import { type NativeBackend, openForTests } from './native.js';

/** Options of an application for a test. */
export interface TestOptions extends Pick<AppOptions, 'bigints'> {
  /** What the clock of the store shows at first; a fixed moment by default. */
  now?: Date;
}

interface FileSystem {
  mkdtempSync(prefix: string): string;
  rmSync(path: string, options: { recursive: boolean; force: boolean }): void;
}

interface Modules {
  getBuiltinModule?(name: string): unknown;
}

const MOMENT = new Date('2026-01-01T00:00:00Z');

function builtin<T>(name: string): T {
  const module = (globalThis as { process?: Modules }).process?.getBuiltinModule?.(name);
  if (module === undefined) throw new GristmillError('gristmill/testing needs Node 20.16 or newer');
  return module as T;
}

/**
 * An application on a store in a temporary file, which is removed when it is closed. Its clock stands still until `advance` moves
 * it, and nothing happens in the background.
 */
export class TestApp extends App {
  private readonly folder: string;
  private readonly now: Date;
  private native: NativeBackend | null = null;

  constructor(options: TestOptions = {}) {
    const { now = MOMENT, ...others } = options;
    const files = builtin<FileSystem>('node:fs');
    const folder = files.mkdtempSync(`${builtin<{ tmpdir(): string }>('node:os').tmpdir()}/gristmill-test-`);
    super(`${folder}/jobs.db`, others);
    this.folder = folder;
    this.now = now;
  }

  /** @internal */
  protected override async open(): Promise<Backend> {
    this.native = await openForTests(this.store, this.now.getTime());
    return this.native;
  }

  /** @internal */
  override nowMs(): number {
    return this.native === null ? this.now.getTime() : this.native.nowMs();
  }

  /**
   * Moves the clock. Schedules that are due by then submit their jobs, and jobs that no worker started in time expire. Call `drain`
   * to run what can be run then.
   */
  async advance(span: Span): Promise<void> {
    await this.backend();
    await this.native!.advance(milliseconds(span, 'the span'));
  }

  /** The time of the clock. */
  async time(): Promise<Date> {
    return new Date((await this.backend()).nowMs());
  }

  /** Closes the store and removes it. */
  override async close(): Promise<void> {
    await super.close();
    this.native = null;
    builtin<FileSystem>('node:fs').rmSync(this.folder, { recursive: true, force: true });
  }
}
