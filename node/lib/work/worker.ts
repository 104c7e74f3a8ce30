// A worker: the store's jobs of some kinds, run in this event loop.

import type { Backend, Channel, Message, Plan } from '../backend.js';
import type { BigInts } from '../values/encode.js';
import type { MicroBatch } from './micro-batch.js';
import { type KindSpec, Runner } from './runner.js';

/** The totals of a worker at its end. */
export interface Summary {
  /** The completed jobs. */
  readonly completed: number;
  /** The failed attempts. */
  readonly failed: number;
}

/** A worker that runs in the background. It keeps the event loop alive until it has ended. */
export class Worker {
  private readonly runners: Runner[];
  /** The micro-batches that may still be drained or cancelled, by their numbers. */
  private readonly known = new Map<number, { runner: Runner; microBatch: MicroBatch }>();
  /** Resolves when the worker has ended. */
  readonly ended: Promise<Summary>;

  /** @internal */
  constructor(private readonly channel: Channel, kinds: readonly KindSpec[], bigints: BigInts) {
    this.runners = kinds.map((spec, number) => new Runner(channel, number, spec, bigints, (ended) => this.known.delete(ended)));
    this.ended = channel.ended();
    // Whoever awaits it gets its failure.
    this.ended.catch(() => {});
  }

  /** @internal */
  static async start(backend: Backend, plan: Omit<Plan, 'kinds'>, kinds: readonly KindSpec[], bigints: BigInts): Promise<Worker> {
    let worker: Worker | undefined;
    const ofKinds = kinds.map(({ kind, concurrency }) => ({ kind, concurrency }));
    const channel = await backend.startWorker({ ...plan, kinds: ofKinds }, () => worker?.look());
    worker = new Worker(channel, kinds, bigints);
    worker.look();
    return worker;
  }

  /** Stops it: it claims no more, and gives back what has not begun. Resolves when the running jobs have ended. */
  stop(): Promise<Summary> {
    this.channel.stop();
    return this.ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  private look(): void {
    const stirred = new Set<Runner>();
    for (const message of this.channel.take()) this.heed(message, stirred);
    for (const runner of stirred) runner.turn();
  }

  private heed(message: Message, stirred: Set<Runner>): void {
    if (message.what === 'run') {
      const runner = this.runners[message.kind]!;
      this.known.set(message.number, { runner, microBatch: runner.add(message) });
      stirred.add(runner);
      return;
    }
    if (message.what === 'recall') {
      this.runners[message.number]!.recall();
      return;
    }
    const known = this.known.get(message.number);
    if (known === undefined) return;
    if (message.what === 'drain') known.runner.drain(known.microBatch);
    else known.runner.cancel(known.microBatch, message.places ?? []);
    stirred.add(known.runner);
  }
}
