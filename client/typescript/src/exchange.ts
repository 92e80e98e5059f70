/**
 * One request and its repetitions: deadlines, back-off, what may be repeated, over `fetch`.
 *
 * Not here: trust and unlock keys (`session.ts`).
 *
 * - A request is repeated only if it cannot have had an effect, or has the same effect twice.
 * - No repetition begins after the deadline, whatever Retry-After says.
 * - An answer has a greatest length, and the time that a line of 64 KiB/s needs for it.
 */

import { type Bytes, concat, fromUtf8 } from "./bytes.ts";
import {
  malformedAnswer,
  type MemrelayError,
  RateLimited,
  ServerError,
  serverError,
  TimedOut,
  TransportError,
  Unavailable,
} from "./errors.ts";

export const ANSWER_BYTES_MAX = 16 * 2 ** 20;
export const LONG_ANSWER_BYTES_MAX = 256 * 2 ** 20; // chains of grants, and what has no bound
const SLICE_MS = 20; // of computing without a pause
const MEMORY_BYTES_MAX = 2 * 2 ** 20; // a text of the greatest length, with its line ends escaped
const SLOWEST_BYTES_MS = (64 * 2 ** 10) / 1000;
const UNSENT_IN_DENO = "client error (Connect)"; // which has no code
const NEVER_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH"];

/** An object of an answer's JSON; what is in it is the relayer's word. */
export type Answer = Record<string, unknown>;

/** How long to try, and whom to tell of it. */
export interface Patience {
  /** For one attempt. */
  readonly timeoutMs: number;
  /** For all attempts of one request. */
  readonly deadlineMs: number;
  readonly attemptsMax: number;
  /** Is told the error before each pause that another attempt follows. */
  readonly onRepeat: ((error: MemrelayError) => void) | undefined;
}

/** A request that is signed anew at each attempt. */
export interface Sending {
  readonly method: string;
  readonly url: string;
  readonly body: Bytes | null;
  readonly headers: () => Record<string, string>;
  readonly isRepeatable: boolean;
  readonly answerBytesMax: number;
  readonly signal: AbortSignal | undefined;
}

/** Returns how long an answer with so many memories may be. */
export function memoriesBytesMax(count: number): number {
  return Math.max(ANSWER_BYTES_MAX, Math.min(count * MEMORY_BYTES_MAX, LONG_ANSWER_BYTES_MAX));
}

/** Asks until there is an answer, an error that repeating cannot cure, or no time left. */
export class Exchange {
  readonly #fetch: typeof fetch;
  readonly #patience: Patience;

  constructor(fetcher: typeof fetch, patience: Patience) {
    this.#fetch = fetcher;
    this.#patience = patience;
  }

  /**
   * Returns the JSON object that the relayer answers.
   *
   * @throws {ServerError} it refused. {TransportError} it was not reached.
   */
  async run(sending: Sending): Promise<Answer> {
    const until = performance.now() + this.#patience.deadlineMs;
    for (let attempt = 1; ; attempt++) {
      try {
        const leftMs = Math.max(100, until - performance.now());
        return await this.#reply(sending, Math.min(this.#patience.timeoutMs, leftMs));
      } catch (error) {
        const pauseMs = pauseBefore(error, attempt, sending.isRepeatable);
        const isLast = attempt >= this.#patience.attemptsMax;
        if (pauseMs === null || isLast || performance.now() + pauseMs >= until) throw error;
        this.#patience.onRepeat?.(error as MemrelayError);
        await sleep(pauseMs, sending.signal);
      }
    }
  }

  async #reply(sending: Sending, timeoutMs: number): Promise<Answer> {
    const clock = new Countdown(timeoutMs, sending.signal);
    try {
      const response = await this.open(sending, clock.signal);
      const data = await readBody(response, sending.answerBytesMax, clock);
      if (!response.ok) throw refusal(response, data, sending.url);
      return readAnswer(data);
    } catch (error) {
      throw clock.explain(error);
    } finally {
      clock.stop();
    }
  }

  /** Sends a request, and returns the answer before its body came. */
  open(sending: Sending, signal: AbortSignal): Promise<Response> {
    return this.#fetch(sending.url, {
      method: sending.method,
      headers: sending.headers(),
      body: sending.body,
      signal,
      // Followed, a signed request would go elsewhere. Not every runtime knows `error`.
      redirect: "manual",
      ...PRIVATE,
    });
  }
}

// Runtimes without cookies, caches and referrers refuse to hear of them.
const PRIVATE: RequestInit = Object.fromEntries(
  [
    ["credentials", "omit"],
    ["cache", "no-store"],
    ["referrerPolicy", "no-referrer"],
  ].filter(([name]) => typeof Request === "function" && name! in Request.prototype),
);

/** A time that runs out, or is ended by a caller; more bytes of an answer make it longer. */
export class Countdown {
  readonly #ending = new AbortController();
  #startedMs = performance.now();
  readonly #timeoutMs: number;
  readonly #outer: AbortSignal | undefined;
  readonly #onAbort = (): void => this.#ending.abort();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isOver = false;

  constructor(timeoutMs: number, outer: AbortSignal | undefined) {
    this.#timeoutMs = timeoutMs;
    this.#outer = outer;
    outer?.throwIfAborted();
    outer?.addEventListener("abort", this.#onAbort, { once: true });
    this.extend(0);
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Lets so many bytes of an answer take the time that a slow line needs. */
  extend(bytes: number): void {
    clearTimeout(this.#timer);
    const endMs = this.#startedMs + this.#timeoutMs + bytes / SLOWEST_BYTES_MS;
    this.#timer = setTimeout(
      () => {
        this.#isOver = true;
        this.#ending.abort();
      },
      Math.max(0, endMs - performance.now()),
    );
  }

  /** Begins anew, as of a stream that showed a sign of life. */
  restart(): void {
    this.#startedMs = performance.now();
    this.extend(0);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#onAbort);
  }

  /** Returns what an error while it ran was: the caller's own reason, no time, or no connection. */
  explain(error: unknown): unknown {
    if (error instanceof ServerError || error instanceof TransportError) return error;
    if (this.#outer?.aborted) return this.#outer.reason;
    if (this.#isOver) return new TimedOut("The relayer did not answer in time.", { cause: error });
    return isUnsent(error)
      ? new TransportError("The relayer was not reached.", { cause: error, sent: false })
      : new TransportError("The relayer was not reached, or the connection broke.", {
          cause: error,
        });
  }
}

async function readBody(response: Response, bytesMax: number, clock: Countdown): Promise<Bytes> {
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const next = await reader?.read();
    if (!next || next.done) return concat(...parts);
    size += next.value.length;
    if (size > bytesMax) {
      await reader?.cancel();
      throw new TransportError("The relayer's answer is too long.");
    }
    parts.push(next.value);
    clock.extend(size);
  }
}

function readAnswer(data: Uint8Array): Answer {
  try {
    const value: unknown = JSON.parse(fromUtf8(data));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return value as Answer;
    }
  } catch {
    // told below
  }
  throw malformedAnswer("its JSON");
}

/** Returns the error that an answer tells. */
export function refusal(response: Response, data: Uint8Array, url: string): ServerError {
  let body: unknown;
  try {
    body = readAnswer(data);
  } catch {
    body = null;
  }
  const error = serverError(response.status, body, response.headers);
  const isElsewhere = error.status === 404 && error.code !== "not_found";
  if (!isElsewhere) return error;
  // What is there does not know the path: another server, or another place on it.
  const { origin } = new URL(url);
  return new ServerError(`${origin} has no such route: is that the relayer's URL?`, {
    status: 404,
    code: "http.404",
    requestId: error.requestId,
    retryAfterS: null,
  });
}

/** Returns how long to wait before another attempt, null when there must be none. */
function pauseBefore(error: unknown, attempt: number, isRepeatable: boolean): number | null {
  const isTransport = error instanceof TransportError && !(error instanceof TimedOut);
  if (!isTransport && !(error instanceof RateLimited || error instanceof Unavailable)) return null;
  const neverBegan = error instanceof RateLimited || (isTransport && !error.sent);
  if (!neverBegan && !isRepeatable) return null;
  const backoffMs = Math.min(8_000, 250 * 2 ** attempt) * (0.5 + Math.random() / 2);
  const askedS = error instanceof ServerError ? (error.retryAfterS ?? 0) : 0;
  return Math.max(backoffMs, 1_000 * askedS);
}

/** Returns whether an error of `fetch` says that nothing was sent; each platform says it otherwise. */
function isUnsent(error: unknown): boolean {
  type Said = { readonly code?: unknown; readonly message?: unknown; readonly cause?: Said };
  const { code, cause } = (error ?? {}) as Said;
  const isOfCode = [code, cause?.code].some((one) => NEVER_SENT.includes(String(one)));
  return isOfCode || String(cause?.message).includes(UNSENT_IN_DENO);
}

/** Waits; rejects with the signal's reason once it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/**
 * Returns what to await between steps of long computing: after 20 ms, others get their turn.
 *
 * A page's thread is not to be held up.
 */
export function makeBreak(signal?: AbortSignal): () => Promise<void> {
  let sinceMs = performance.now();
  return async () => {
    if (performance.now() - sinceMs <= SLICE_MS) return;
    await sleep(0, signal);
    sinceMs = performance.now();
  };
}
