/**
 * Follows the stream of an account's events, and goes on after a break.
 *
 * - Whoever loses the stream goes on after the last event that was complete: none is missed, and the
 *   last one may come twice.
 * - What happened so far is told in full or ends with an error: a stream says where that ends.
 * - An event is of bounded length, and a stream that ends at once is not asked for again at once.
 *
 * Source: SPEC.md §18.
 */

import type { Ending } from "../description.ts";
import {
  ConfigError,
  malformedAnswer,
  MemrelayError,
  RateLimited,
  TransportError,
  Unavailable,
} from "../errors.ts";
import { ANSWER_BYTES_MAX, Countdown, refusal, sleep } from "../exchange.ts";
import { makeTarget, parseList, parseText } from "../session.ts";
import { Notifying } from "./notifying.ts";

const READ_MS = 45_000; // three signs of life
const PAUSE_MS_MIN = 250;
const PAUSE_MS_MAX = 30_000;
const EVENT_BYTES_MAX = 2 ** 20;
const PLACE = /^[0-9]{1,16}(?:-[0-9a-f]{1,64})?$/;

/**
 * One thing that happened, by ids alone; `receipt_seq` says where, if a receipt tells of it.
 *
 * `place` is what to go on after once it was taken, null where more of the same receipt follows.
 */
export interface MemoryEvent {
  readonly id: string;
  readonly type: string;
  readonly account_id: string;
  readonly time: string;
  readonly namespace: string | null;
  readonly ids: readonly string[];
  readonly receipt_seq: number | null;
  readonly place: string | null;
}

/** Where to begin, and whether to go on. */
export interface FollowOptions extends Ending {
  /** The number of a receipt or the place of an event; without it, from now on. */
  readonly after?: number | string;
  /** False ends with what happened so far. */
  readonly follow?: boolean;
}

/** All operations. */
export class Following extends Notifying {
  /**
   * Yields what happens, from now on or after a place; `break` ends it.
   *
   * @throws {MemrelayError} it is not worth asking again.
   */
  async *events(options: FollowOptions = {}): AsyncGenerator<MemoryEvent, void> {
    const { signal, follow = true } = options;
    const reader = new EventReader(options.after === undefined ? null : String(options.after));
    for (;;) {
      try {
        for await (const piece of this.#open(reader.place, follow, signal)) {
          yield* reader.read(piece);
        }
        if (!follow && reader.hasAll()) return;
      } catch (error) {
        if (!follow || !reader.goesOnAfter(error)) throw error;
      }
      reader.beginAnew();
      await sleep(reader.pauseMs(), signal);
    }
  }

  /** Yields the pieces of one stream. */
  async *#open(
    after: string | null,
    follow: boolean,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Uint8Array, void> {
    const target = makeTarget("/v1/events", { follow, after });
    const headers = { accept: "text/event-stream" };
    const call = { method: "GET", path: "/v1/events", signal } as const;
    const sending = this.session.sending(call, target, undefined, headers);
    const clock = new Countdown(READ_MS, signal);
    try {
      const response = await this.session.exchange.open(sending, clock.signal);
      if (!response.ok) throw refusal(response, await readShort(response), sending.url);
      const kind = response.headers.get("content-type") ?? "";
      if (kind.split(";")[0]!.trim().toLowerCase() !== "text/event-stream" || !response.body) {
        throw malformedAnswer("its kind: it is no stream of events");
      }
      const stream = response.body.getReader();
      try {
        for (;;) {
          clock.restart(); // a sign of life comes every 15 s
          const { done, value } = await stream.read();
          if (done) return;
          yield value;
        }
      } finally {
        // Left early, the connection would stay open.
        stream.cancel().catch(() => undefined);
      }
    } catch (error) {
      throw clock.explain(error);
    } finally {
      clock.stop();
    }
  }
}

async function readShort(response: Response): Promise<Uint8Array> {
  const data = new Uint8Array(await response.arrayBuffer());
  return data.subarray(0, ANSWER_BYTES_MAX);
}

/** Reads a stream line by line and knows where to go on. */
class EventReader {
  #place: string | null;
  #asked: string | null;
  #line = "";
  #data: string[] = [];
  #held = 0;
  #reached: string | null = null;
  #hasEnded = false;
  #hasHeard = false;
  #failures = 0;
  #decoder = new TextDecoder();

  constructor(after: string | null) {
    if (after !== null && !PLACE.test(after)) {
      throw new ConfigError(
        "A place is the number of a receipt, or what an event has as its place.",
      );
    }
    this.#place = this.#asked = after;
  }

  /** The last receipt that was told of, null before anything was heard. */
  get place(): string | null {
    return this.#place;
  }

  /** Forgets what was not complete: another stream begins where this one stopped. */
  beginAnew(): void {
    this.#line = "";
    this.#data = [];
    this.#held = 0;
    this.#reached = null;
    this.#hasEnded = false;
    this.#asked = this.#place;
    this.#decoder = new TextDecoder();
  }

  /** Yields the events that a piece of the stream completes. */
  *read(piece: Uint8Array): Generator<MemoryEvent, void> {
    const lines = this.#decoder.decode(piece, { stream: true }).split("\n");
    this.#line += lines[0]!;
    for (const following of lines.slice(1)) {
      const event = this.#take(this.#line.replace(/\r$/, ""));
      this.#line = following;
      if (event !== null) yield event;
    }
    if (this.#held + this.#line.length > EVENT_BYTES_MAX) {
      throw malformedAnswer("an event that has no end");
    }
  }

  #take(line: string): MemoryEvent | null {
    if (line === "") return this.#complete();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") {
      this.#data.push(value);
      this.#held += line.length;
    } else if ((name === "id" || name === "place") && PLACE.test(value)) {
      this.#reached = value;
    } else if (line === ": end") {
      this.#hasEnded = true;
    }
    return null;
  }

  #complete(): MemoryEvent | null {
    this.#failures = 0;
    this.#hasHeard = true;
    const data = this.#data.join("\n");
    this.#data = [];
    this.#held = 0;
    const place = this.#reached;
    if (place !== null) this.#place = place;
    this.#reached = null;
    return data === "" ? null : { ...readEvent(data), place };
  }

  /**
   * Returns whether a stream that is over told all that happened so far.
   *
   * @throws {TransportError} it was cut, and asking again may bring no more.
   */
  hasAll(): boolean {
    if (this.#hasEnded) return true;
    if (this.#place !== this.#asked) return false;
    throw new TransportError("The stream ended before all was told.");
  }

  /** Returns whether it is worth asking again: what was heard once may come back. */
  goesOnAfter(error: unknown): boolean {
    const isPassing =
      error instanceof TransportError ||
      error instanceof RateLimited ||
      error instanceof Unavailable;
    this.#failures++;
    return error instanceof MemrelayError && isPassing && this.#hasHeard;
  }

  /** Returns how long to wait before asking again, ever longer while nothing comes. */
  pauseMs(): number {
    if (this.#failures === 0) return PAUSE_MS_MIN;
    const longest = Math.min(PAUSE_MS_MAX, 500 * 2 ** Math.min(this.#failures, 10));
    return longest * (0.5 + Math.random() / 2);
  }
}

/** Returns the event that a line of a stream or the body of a webhook holds. */
export function readEvent(data: string): Omit<MemoryEvent, "place"> {
  let read: unknown;
  try {
    read = JSON.parse(data);
  } catch {
    throw malformedAnswer("an event");
  }
  if (typeof read !== "object" || read === null) throw malformedAnswer("an event");
  const value = read as Record<string, unknown>;
  const seq = value["receipt_seq"];
  const namespace = value["namespace"];
  return {
    id: parseText(value["id"], "an event's id"),
    type: parseText(value["type"], "an event's type"),
    account_id: parseText(value["account_id"], "an event's account"),
    time: parseText(value["time"], "an event's time"),
    namespace: namespace === null ? null : parseText(namespace, "an event's namespace"),
    ids: parseList(value["ids"] as readonly string[], "an event's ids"),
    receipt_seq: typeof seq === "number" ? seq : null,
  };
}
