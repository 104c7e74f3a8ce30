/** The page's knowledge of the server: whether it answers, its events, and its counts over time. */

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { api, get, onOutcome, query, Refused, type QueueCounts, Unreachable } from "./api/client.ts";

/** An event of the store, as `/events` streams it. */
export interface StoreEvent {
  cursor: string;
  at: number;
  type: string;
  batch?: number;
  positions?: string;
  kind?: string;
  queue?: string;
  attempt?: number;
  run_at?: number;
  worker?: number;
}

export interface Sample {
  at: number;
  backlog: number;
  running: number;
  completed: number;
  failed: number;
}

/** The interval of counts while the tab is visible. Milliseconds. */
const SAMPLE_EVERY_MS = 2_000;
/** The first content of a page has this much time before further requests. Milliseconds. */
export const SETTLED_AFTER_MS = 250;
/** Tabs share counts of the server that are at most this old. Milliseconds. */
const COUNTED_WITHIN_MS = 1_500;
/** The same for histories and for the counts of runs. Milliseconds. */
export const SHARED_WITHIN_MS = 2_000;
/** The number of kept counts: 20 minutes. */
const SAMPLES_MAX = 600;
/** The number of kept events, for the page of events. */
export const EVENTS_MAX = 500;
/** The shortest interval between two redraws because of news of the server. Milliseconds. */
const NOTIFY_AT_MOST_EVERY_MS = 100;
/** The shortest interval between two requests of a page because of events. Milliseconds. */
const REFRESH_AT_MOST_EVERY_MS = 2_000;
/** A slow request is repeated only after this many times its duration, so that a tab costs a large store little. */
const PAUSE_PER_ANSWER = 10;
/** An answer that takes longer than this is a stream of events, and no refusal. Milliseconds. */
const REFUSED_WITHIN_MS = 2_000;
/** The waits before the next attempts to listen. Milliseconds. */
const LISTEN_AGAIN_MS = [1_000, 2_000, 5_000, 10_000, 30_000];

const EVENT_NAMES = ["submitted", "completed", "retried", "dead", "cancelled", "expired", "progress", "missed"];

class Live {
  lostSince: number | undefined;
  signedOut = false;
  queues: QueueCounts[] | undefined;
  refused: Refused | undefined;
  /** Why the server streams no events; pages then ask at intervals. */
  eventless: Refused | undefined;
  samples: Sample[] = [];
  events: StoreEvent[] = [];
  /** Grows with each event that changes jobs. */
  version = 0;
  private listeners = new Set<() => void>();
  private source: EventSource | undefined;
  private cursor: string | undefined;
  private failures = 0;
  private notified_at = -Infinity;
  private timers: { sample?: number; listen?: number; notify?: number } = {};
  private started = false;

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Notifies at once after a quiet time, and otherwise at intervals, however many events come. */
  private changed(): void {
    const pause_ms = Math.max(0, this.notified_at + NOTIFY_AT_MOST_EVERY_MS - performance.now());
    this.timers.notify ??= window.setTimeout(() => {
      delete this.timers.notify;
      this.notified_at = performance.now();
      for (const listener of this.listeners) listener();
    }, pause_ms);
  }

  start(): void {
    if (this.started) return;
    this.started = true;
    document.addEventListener("visibilitychange", () => this.follow());
    onOutcome((outcome) => {
      const lost = outcome === "lost";
      if (lost !== (this.lostSince !== undefined) || (outcome === "signed-out") !== this.signedOut) {
        this.lostSince = lost ? Date.now() : undefined;
        this.signedOut = outcome === "signed-out";
        this.version += 1;
        this.changed();
        if (outcome === "answered") this.follow();
      }
    });
    // The counts of a large store cost more than most pages, so pages ask first.
    if (!document.hidden) this.listen();
    this.timers.sample = window.setTimeout(() => this.follow(), SETTLED_AFTER_MS);
  }

  /** Asks for the first counts without a pause, because the page shows them. */
  countFirst(): void {
    if (!this.queues) this.follow();
  }

  /** Asks and listens while the tab is visible; a hidden tab costs the server nothing. */
  follow(): void {
    clearTimeout(this.timers.sample);
    if (document.hidden) {
      this.unlisten();
      return;
    }
    void this.sample();
    if (!this.source) this.listen();
  }

  private async sample(): Promise<void> {
    clearTimeout(this.timers.sample);
    const asked_at = Date.now();
    try {
      const { queues } = await get<{ queues: QueueCounts[] }>(`/queues${query({ age_ms_max: COUNTED_WITHIN_MS })}`);
      this.queues = queues;
      this.refused = undefined;
      const sum = (of: (counts: QueueCounts) => number) => queues.reduce((total, counts) => total + of(counts), 0);
      this.samples.push({
        at: Date.now(),
        backlog: sum((counts) => counts.waiting + counts.scheduled + counts.blocked + counts.paused),
        running: sum((counts) => counts.running),
        completed: sum((counts) => counts.completed),
        failed: sum((counts) => counts.dead + counts.expired),
      });
      this.samples.splice(0, Math.max(0, this.samples.length - SAMPLES_MAX));
    } catch (error) {
      if (error instanceof Refused) this.refused = error;
      else if (!(error instanceof Unreachable)) throw error;
    }
    this.changed();
    clearTimeout(this.timers.sample);
    if (!document.hidden && !this.signedOut) {
      const pause_ms = Math.max(SAMPLE_EVERY_MS, (Date.now() - asked_at) * PAUSE_PER_ANSWER);
      this.timers.sample = window.setTimeout(() => void this.sample(), pause_ms);
    }
  }

  private listen(): void {
    clearTimeout(this.timers.listen);
    if (this.signedOut) return;
    const source = new EventSource(api(`/events${this.cursor ? `?after=${this.cursor}` : ""}`));
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.eventless = undefined;
      this.changed();
    };
    for (const name of EVENT_NAMES) {
      source.addEventListener(name, (message) => this.take(JSON.parse((message as MessageEvent<string>).data)));
    }
    source.onerror = () => {
      // The browser retries by itself after a broken connection, but not after a refusal.
      if (source.readyState !== EventSource.CLOSED) return;
      this.unlisten();
      void this.askWhy();
      const wait = LISTEN_AGAIN_MS[Math.min(this.failures, LISTEN_AGAIN_MS.length - 1)];
      this.failures += 1;
      this.timers.listen = window.setTimeout(() => !document.hidden && !this.source && this.listen(), wait);
    };
  }

  /** Asks why the stream was refused, because the stream does not tell. */
  private async askWhy(): Promise<void> {
    try {
      await get("/events", AbortSignal.timeout(REFUSED_WITHIN_MS));
    } catch (error) {
      if (!(error instanceof Refused)) return;
      this.eventless = error;
      this.changed();
    }
  }

  private unlisten(): void {
    clearTimeout(this.timers.listen);
    this.source?.close();
    this.source = undefined;
  }

  /** Makes pages ask again after a change without an event. */
  touch(): void {
    this.version += 1;
    this.changed();
  }

  private take(event: StoreEvent): void {
    this.cursor = event.cursor;
    if (event.type !== "progress") {
      this.events.push(event);
      this.events.splice(0, Math.max(0, this.events.length - EVENTS_MAX));
    }
    this.touch();
  }
}

export const live = new Live();

/** Redraws when something on the server has changed. */
export function useLive(): Live {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  useLayoutEffect(() => live.subscribe(() => draw(undefined)), []);
  return live;
}

/** The same for a page that mainly shows counts. */
export function useLiveCounts(): Live {
  useLayoutEffect(() => live.countFirst(), []);
  return useLive();
}

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  reload: () => void;
}

/**
 * The answer to a GET, asked again after events and at an interval while the tab is visible. Until another answer
 * comes, the last one stays.
 */
export function useLoaded<T>(path: string | undefined, every_ms = 5_000, read?: (text: string) => T): Loaded<T> {
  const [state, setState] = useState<{ path: string | undefined; data?: T; error?: Error }>({ path: undefined });
  const reloading = useRef(() => {});
  // Before the browser paints, so that the request does not wait for a frame.
  useLayoutEffect(() => {
    if (path === undefined) return;
    const abort = new AbortController();
    let timer: number | undefined;
    let asked_at = 0;
    let took_ms = 0;
    let seen = live.version;
    let asking = false;
    const ask = async () => {
      if (asking) return;
      asking = true;
      clearTimeout(timer);
      asked_at = Date.now();
      seen = live.version;
      try {
        const data = await get<T>(path, abort.signal, read);
        if (!abort.signal.aborted) setState({ path, data });
      } catch (error) {
        if (abort.signal.aborted) return;
        setState((last) => ({
          path,
          ...(last.path === path && last.data !== undefined ? { data: last.data } : {}),
          error: error instanceof Error ? error : new Error(String(error)),
        }));
      }
      asking = false;
      took_ms = Date.now() - asked_at;
      timer = window.setTimeout(wake, Math.max(every_ms, took_ms * PAUSE_PER_ANSWER));
    };
    const wake = () => {
      if (!document.hidden) void ask();
    };
    const stop = live.subscribe(() => {
      if (document.hidden || asking || live.version === seen) return;
      clearTimeout(timer);
      timer = window.setTimeout(
        wake,
        Math.max(0, asked_at + Math.max(REFRESH_AT_MOST_EVERY_MS, took_ms * PAUSE_PER_ANSWER) - Date.now()),
      );
    });
    document.addEventListener("visibilitychange", wake);
    reloading.current = () => void ask();
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
      stop();
      document.removeEventListener("visibilitychange", wake);
    };
  }, [path, every_ms]);
  const current = state.path === path;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    reload: () => reloading.current(),
  };
}

/** Whether the first content of a page has had its time; expensive requests wait for that. */
export function useSettled(): boolean {
  const [settled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLED_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return settled;
}

/** The time, for relative times; moves once a second while the tab is visible. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
