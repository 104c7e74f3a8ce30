// Events of a server: reads the stream, and connects again if it breaks.

import type { EventSource } from '../backend.js';
import { WAIT_MS_MAX } from '../backend.js';
import { StoreError } from '../errors.js';
import { type Connection, pause } from './connection.js';

// The pause before another connection, and how often one is tried in vain.
const AGAIN_MS = 500, TRIES_MAX = 20;
/** Events that were read and not taken; beyond them the stream is not read on. */
const EVENTS_WAITING_MAX = 1_000;

/** A listener to the events of a server. @internal */
export class RemoteEvents implements EventSource {
  private readonly closing = new AbortController();
  private waiting: string[] = [];
  private failure: Error | null = null;
  private came: (() => void) | null = null;
  private taken: (() => void) | null = null;

  private constructor(private readonly connection: Connection, private cursor: string | null, private readonly onClosed: () => void) {}

  /** Connects first, so that a refusal is thrown here, and no later event is missed. */
  static async listen(connection: Connection, after: string | null, onClosed: () => void): Promise<RemoteEvents> {
    const events = new RemoteEvents(connection, after, onClosed);
    const stream = await events.open();
    void events.follow(stream);
    return events;
  }

  async take(signal?: AbortSignal): Promise<string[]> {
    if (this.waiting.length === 0 && this.failure === null) {
      const came = new Promise<void>((resolve) => {
        this.came = resolve;
      });
      await Promise.race([came, pause(WAIT_MS_MAX, signal)]);
    }
    if (this.waiting.length === 0 && this.failure !== null) throw this.failure;
    const events = this.waiting;
    this.waiting = [];
    this.taken?.();
    return events;
  }

  close(reason: Error | null = null): void {
    this.closing.abort();
    this.onClosed();
    this.failure ??= reason;
    this.came?.();
    this.taken?.();
  }

  private open(): Promise<ReadableStream<Uint8Array>> {
    return this.connection.stream('/events', this.cursor === null ? {} : { 'Last-Event-ID': this.cursor }, this.closing.signal);
  }

  private async follow(first: ReadableStream<Uint8Array>): Promise<void> {
    let stream: ReadableStream<Uint8Array> | null = first;
    for (let tries = 0; !this.closing.signal.aborted;) {
      try {
        stream ??= await this.open();
        for await (const event of eventsIn(stream)) {
          tries = 0;
          await this.put(event.id, event.data);
          if (this.closing.signal.aborted) return;
        }
      } catch (error) {
        if (++tries >= TRIES_MAX) {
          this.failure = new StoreError(`the events of ${this.connection.baseUrl} ended: ${(error as Error).message}`);
          this.came?.();
          return;
        }
      }
      stream = null;
      await pause(AGAIN_MS, this.closing.signal);
    }
  }

  private async put(id: string | null, data: string): Promise<void> {
    this.cursor = id ?? this.cursor;
    this.waiting.push(data);
    this.came?.();
    if (this.waiting.length >= EVENTS_WAITING_MAX) {
      await new Promise<void>((resolve) => {
        this.taken = resolve;
      });
    }
  }
}

/** The events of a stream of server-sent events. */
async function* eventsIn(stream: ReadableStream<Uint8Array>): AsyncGenerator<{ id: string | null; data: string }, void, undefined> {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let rest = '', id: string | null = null, data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
      rest = lines.pop()!;
      for (const line of lines) {
        const [, name, text] = /^([^:]*):? ?(.*)$/s.exec(line)!;
        if (name === 'data') data.push(text!);
        else if (name === 'id') id = text!;
        else if (line === '' && data.length > 0) {
          yield { id, data: data.join('\n') };
          data = [];
          id = null;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
