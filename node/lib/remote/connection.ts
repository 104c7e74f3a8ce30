// Requests to a server: a token, limits, safe repeats.

import { AnswerTooLarge } from '../backend.js';
import { InvalidValue, NotFound, StoreError } from '../errors.js';

/** Where all operations are. */
const BASE = '/api/v1';
// How long a server may take to answer beside what a request waits for. Milliseconds.
const ANSWER_MS = 60_000;
// How often a request is sent at most, and the pauses between; a server may ask for longer ones. Milliseconds.
const ATTEMPTS_MAX = 6, PAUSE_MS_FIRST = 100, PAUSE_MS_MAX = 5_000;
/** Refusals by which a server says that it has done nothing, and that it may be asked again. */
const REPEATABLE = ['too_many', 'stopping', 'not_ready'];

/** One request. @internal */
export interface Request {
  body?: string;
  /** Gives the request up. */
  signal?: AbortSignal | undefined;
  /** How long the server waits before it answers. Milliseconds. */
  waitMs?: number;
  /** Whether the request may be sent again when the connection breaks before the answer. */
  isRepeatable?: boolean;
  /** The bytes of the answer, at most. A longer one is an `AnswerTooLarge`. */
  answerBytesMax?: number;
  headers?: Record<string, string>;
}

interface Refusal {
  error?: string;
  remedy?: string;
  code?: string;
}

const isLoopback = (host: string) => host === 'localhost' || host === '[::1]' || /^127(\.\d{1,3}){3}$/.test(host);

/** A refusal as an error: the problem and the remedy. */
function refused(response: Response, answer: string): StoreError {
  const { status } = response;
  // A browser does not tell the status of a redirection.
  if (response.type === 'opaqueredirect' || (status >= 300 && status < 400)) {
    const location = response.headers.get('Location') ?? 'another address';
    return new StoreError(`the server redirects to ${location}, and nothing was done: give the address that answers itself`, { status });
  }
  try {
    const { error, remedy } = JSON.parse(answer) as Refusal;
    if (typeof error === 'string' && typeof remedy === 'string') {
      // Some errors name the remedy themselves.
      const told = error.includes(remedy) ? error : `${error}: ${remedy}`;
      return status === 404 ? new NotFound(told, { status }) : new StoreError(told, { status });
    }
  } catch {
    // It is not of Gristmill.
  }
  const text = JSON.stringify(answer.slice(0, 200));
  return new StoreError(`the server answered with status ${status}, not as Gristmill does: ${text}; check its address`, { status });
}

/** A wait that a signal ends early. @internal */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted === true) end();
  });
}

/** The connections to one server. @internal */
export class Connection {
  readonly baseUrl: string;
  private readonly headers: Record<string, string> = {};

  constructor(address: string, token?: string) {
    let url: URL;
    try {
      url = new URL(address);
    } catch {
      const remedy = 'write it as in https://jobs.example:8378';
      const shown = JSON.stringify(address.replace(/\/\/.*@/s, '//…@'));
      throw new InvalidValue(`${shown} is not the address of a server: ${remedy}`, 'store');
    }
    if (url.search !== '' || url.hash !== '' || url.username !== '') {
      throw new InvalidValue(`${JSON.stringify(url.origin)} has more than an address: write it as in https://jobs.example:8378`, 'store');
    }
    const environment = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env;
    const given = (token ?? environment?.GRISTMILL_TOKEN ?? '').trim();
    if (given !== '' && url.protocol === 'http:' && !isLoopback(url.hostname)) {
      throw new InvalidValue(`refusing to send a token to ${url.origin} in clear text: use https://`, 'token');
    }
    if (/[^\x21-\x7e]/.test(given)) {
      throw new InvalidValue('the token is not one line of text without spaces: give it as `gristmill token create` printed it', 'token');
    }
    this.baseUrl = `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
    if (given !== '') this.headers.Authorization = `Bearer ${given}`;
  }

  /** The body of the answer. A refusal is thrown. A request that may have stored something is not sent again. */
  async send(method: string, target: string, request: Request = {}): Promise<string> {
    const isSafe = method === 'GET' || method === 'HEAD' || request.isRepeatable === true;
    let pauseMs = PAUSE_MS_FIRST;
    for (let attempt = 1; ; attempt++) {
      let problem: StoreError, afterMs: number | null = null;
      try {
        const response = await this.open(method, target, request, ANSWER_MS + (request.waitMs ?? 0));
        const answer = await textOf(response, request.answerBytesMax);
        if (response.ok) return answer;
        problem = refused(response, answer);
        const mayRepeat = (response.status === 429 || response.status === 503) && (isSafe || REPEATABLE.includes(codeOf(answer)));
        if (!mayRepeat) throw problem;
        const seconds = Number(response.headers.get('Retry-After') ?? NaN);
        afterMs = Number.isFinite(seconds) ? seconds * 1000 : null;
      } catch (error) {
        request.signal?.throwIfAborted();
        if (error instanceof StoreError) throw error;
        if (!isSafe) {
          throw new StoreError(`the connection to ${this.baseUrl} broke before the answer (${reasonOf(error)}): the request may or ` +
            'may not be stored; give jobs a `key` to submit them again safely', { cause: error });
        }
        problem = new StoreError(`${this.baseUrl} cannot be reached: ${reasonOf(error)}`, { cause: error });
      }
      if (attempt === ATTEMPTS_MAX) throw problem;
      await pause(Math.min(afterMs ?? pauseMs, PAUSE_MS_MAX), request.signal);
      request.signal?.throwIfAborted();
      pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX);
    }
  }

  /** Begins a stream of events. A refusal is thrown. */
  async stream(target: string, headers: Record<string, string>, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    let response: Response;
    try {
      response = await this.open('GET', target, { headers, signal }, null);
    } catch (error) {
      throw new StoreError(`${this.baseUrl} cannot be reached: ${reasonOf(error)}`, { cause: error });
    }
    if (!response.ok || response.body === null) throw refused(response, await response.text());
    return response.body;
  }

  private open(method: string, target: string, request: Request, answerMs: number | null): Promise<Response> {
    const { body, signal } = request;
    const limit = answerMs === null ? [] : [AbortSignal.timeout(Math.ceil(answerMs))];
    const signals = signal === undefined ? limit : [...limit, signal];
    return fetch(`${this.baseUrl}${BASE}${target}`, {
      method,
      // A redirected POST would become a GET.
      redirect: 'manual',
      headers: { ...this.headers, ...request.headers, ...body === undefined ? {} : { 'Content-Type': 'application/json' } },
      ...body === undefined ? {} : { body },
      ...signals.length === 0 ? {} : { signal: signals.length === 1 ? signals[0]! : AbortSignal.any(signals) },
    });
  }
}

/** The text of an answer. Reads at most `bytesMax` bytes, and throws if there are more. */
async function textOf(response: Response, bytesMax: number | undefined): Promise<string> {
  if (bytesMax === undefined || response.body === null) return response.text();
  const reader = response.body.getReader(), decoder = new TextDecoder(), parts: string[] = [];
  for (let bytes = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return parts.join('') + decoder.decode();
    bytes += value.length;
    if (bytes > bytesMax) {
      void reader.cancel().catch(() => {});
      throw new AnswerTooLarge(`they have over ${bytesMax} bytes`);
    }
    parts.push(decoder.decode(value, { stream: true }));
  }
}

function codeOf(answer: string): string {
  try {
    return (JSON.parse(answer) as Refusal).code ?? '';
  } catch {
    return '';
  }
}

/** Why a request failed, in words. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as { cause?: { message?: string; code?: string }; message?: string };
  return cause?.message || cause?.code || message || String(error);
}
