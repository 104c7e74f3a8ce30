/** Requests to the API of the server that has this page. */

import { fieldTexts } from "../json_text.ts";
import type { components } from "./schema.ts";

type Schemas = components["schemas"];

export const STATES = [
  "blocked",
  "waiting",
  "scheduled",
  "paused",
  "running",
  "completed",
  "dead",
  "cancelled",
  "expired",
] as const;
export type State = (typeof STATES)[number];
export type States = Record<State, number>;

/** The states of ended jobs. */
export const ENDED: readonly State[] = ["completed", "dead", "cancelled", "expired"];
export const hasEnded = (state: string) => ENDED.some((ended) => ended === state);

/** The reason of pauses that are set on this page. */
export const REASON = "dashboard";

export type JobSummary = Schemas["JobSummary"] & { state: string };
/** A job with its payload and value as texts, whose numbers are exact. */
export type JobView = Omit<Schemas["JobView"], "payload" | "value"> & { payload: string; value?: string };
export type Failure = Schemas["FailureView"];
export type Step = Omit<Schemas["StepView"], "state"> & { state?: string };
export type StepsPage = Omit<Schemas["StepsPage"], "steps"> & { steps: Step[] };
export type Flow = Schemas["FlowView"];
export type FlowKind = Schemas["FlowKindView"];
export type QueueCounts = Schemas["QueueCounts"];
export type Control = Schemas["ControlView"];
export type Scope = Partial<Schemas["ControlScope"]>;
export type Schedule = Schemas["ScheduleView"];
export type Worker = Schemas["WorkerView"];
export type HistoryRow = Schemas["HistoryView"];
export type Searched = Schemas["Searched"];
export type Filter = Schemas["FilterRequest"];
export type Operation = Schemas["OperationView"];
export type OperationRequest = Schemas["OperationRequest"];
export type MemoryOverview = Schemas["MemoryOverview"];
export type MemoryRecall = Schemas["MemoryRecall"];
export type MemoryMessage = Schemas["MemoryMessage"];
export type Batch = Omit<Schemas["BatchView"], "states"> & { states: States };
export type Run = Omit<Schemas["RunView"], "states"> & { states: States };
export type Counted = { jobs: number; states: States };

/** The states of all jobs of these kinds. */
export function total(queues: QueueCounts[]): States {
  const states = Object.fromEntries(STATES.map((state) => [state, 0])) as States;
  for (const counts of queues) for (const state of STATES) states[state] += counts[state];
  return states;
}

/** A refusal of the server: the problem and the remedy, in its own words. */
export class Refused extends Error {
  readonly status: number;
  readonly remedy: string;
  constructor(status: number, error: string, remedy: string) {
    super(error);
    this.status = status;
    this.remedy = remedy;
  }
}

/** The server did not answer. */
export class Unreachable extends Error {}

/** Requests wait this long for an answer. Milliseconds. */
const ANSWER_WITHIN_MS = 30_000;

type Method = "GET" | "POST" | "PUT" | "DELETE";
type Outcome = "answered" | "lost" | "signed-out";

/** Notified of each request: whether the server answered, and whether it knows the caller. */
let noteOutcome: (outcome: Outcome) => void = () => {};
export function onOutcome(listener: (outcome: Outcome) => void): void {
  noteOutcome = listener;
}

export async function send<T>(
  method: Method,
  path: string,
  body?: unknown,
  options: { signal?: AbortSignal; headers?: Record<string, string>; read?: (text: string) => T } = {},
): Promise<T> {
  const timeout = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const init: RequestInit = {
    method,
    headers: { accept: "application/json", ...options.headers },
    signal: options.signal ? AbortSignal.any([options.signal, timeout]) : timeout,
    credentials: "same-origin",
    cache: "no-store",
  };
  if (body !== undefined) {
    init.body = typeof body === "string" ? body : JSON.stringify(body);
    init.headers = { ...init.headers, "content-type": "application/json" };
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, init);
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    noteOutcome("lost");
    throw new Unreachable("The server does not answer.");
  }
  noteOutcome(response.status === 401 ? "signed-out" : "answered");
  if (response.ok && options.read) return options.read(text);
  if (response.ok) return (text === "" ? undefined : JSON.parse(text)) as T;
  throw refusal(response.status, text);
}

function refusal(status: number, text: string): Refused {
  try {
    const { error, remedy } = JSON.parse(text) as { error?: unknown; remedy?: unknown };
    if (typeof error === "string") return new Refused(status, error, typeof remedy === "string" ? remedy : "");
  } catch {
    // A proxy may answer with a page of its own.
  }
  return new Refused(status, `the server answered with status ${status}`, "see the server's log");
}

export const get = <T>(path: string, signal?: AbortSignal, read?: (text: string) => T) =>
  send<T>("GET", api(path), undefined, { ...(signal ? { signal } : {}), ...(read ? { read } : {}) });
export const post = <T>(path: string, body: unknown) => send<T>("POST", api(path), body);
export const put = <T>(path: string, body: unknown) => send<T>("PUT", api(path), body);
export const remove = (path: string) => send<void>("DELETE", api(path));

/** Reads the answer with one job. */
export function readJob(text: string): JobView {
  const texts = fieldTexts(text);
  const { payload: _payload, value: _value, ...job } = JSON.parse(text) as Schemas["JobView"];
  const value = texts.get("value");
  return { ...job, payload: texts.get("payload") ?? "null", ...(value === undefined ? {} : { value }) };
}

export const api = (path: string) => `/api/v1${path}`;

/** `?a=b` of the fields that have a value. */
export function query(fields: Record<string, string | number | undefined | null>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text === "" ? "" : `?${text}`;
}

export interface Session {
  subject: string;
  role: "admin" | "operator" | "submit" | "agent" | "monitor" | null;
  queues: string;
  tokens: boolean;
  version: string;
}

const SESSION = "/dashboard/session";
export const session = {
  show: () => send<Session>("GET", SESSION),
  signIn: (token: string) =>
    send<Session>("POST", SESSION, undefined, { headers: { authorization: `Bearer ${token.trim()}` } }),
  signOut: () => send<void>("DELETE", SESSION),
};
