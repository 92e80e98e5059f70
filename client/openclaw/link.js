/**
 * The line to `memrelay gateway`: JSON-RPC 2.0, one object a line, over a local socket.
 *
 * It does not own what is asked (`index.js`).
 *
 * - A call never throws and never outlasts its deadline.
 * - Nothing is handed over before the other end has shown that it knows the endpoint file.
 * - While the gateway is away, calls answer `undefined` at once, and one warning is logged.
 * - All agents share the connection: one call that fails, or is late, does not end it for the others.
 * - What is too long for a line is not sent: the gateway would end the connection for all.
 */

import { readFileSync } from "node:fs";
import { connect } from "node:net";

const HELLO_MS = 1_000;
const PAUSE_MS_MIN = 1_000; // after a failure; doubled with each further one
const PAUSE_MS_MAX = 30_000;
const LATE_MAX = 2; // calls one after the other, without any answer, after which the gateway hangs
const LINE_CHARS_MAX = 2 * 1024 * 1024;
const PARAMS_BYTES_MAX = LINE_CHARS_MAX - 128; // without what stands around them in a line

/** The gateway answered a call with an error. */
class Refused extends Error {}

/** A call has had no answer by its deadline. */
class Late extends Error {}

/** A connection that is opened when it is first needed, and again after it broke. */
export class Link {
  /** What the gateway said about itself when it was last reached. */
  welcome = { hook_deadline_ms: 0, debounce: false };

  #opening;
  #socket;
  #waiting = new Map();
  #lastId = 0;
  #late = 0; // calls one after the other, since the last answer to any
  #lateAt = 0; // when the last of these was late
  #pauseMs = 0;
  #retryAt = 0;

  /**
   * @param {object} options
   * @param {string} options.endpoint file that the gateway writes: where it listens, and the token
   * @param {object} options.hello what the gateway is told besides the token
   * @param {{info: (text: string) => void, warn: (text: string) => void}} options.logger
   */
  constructor({ endpoint, hello, logger }) {
    Object.assign(this, { endpoint, hello, logger });
  }

  /**
   * Return what a method answers: null if that is nothing or an error, undefined if it did not.
   *
   * @param {string} method
   * @param {object} params
   * @param {number} [deadlineMs] instead of the one for hooks, which the gateway names
   */
  async call(method, params, deadlineMs) {
    if (performance.now() < this.#retryAt) return undefined;
    try {
      const text = JSON.stringify(params);
      if (Buffer.byteLength(text) > PARAMS_BYTES_MAX) {
        this.logger.warn("memrelay: a call was left out: it is longer than the gateway reads.");
        return undefined;
      }
      await (this.#opening ??= this.#open());
      return await this.#answered(method, text, deadlineMs ?? this.welcome.hook_deadline_ms);
    } catch (error) {
      this.#noteFailure(error);
      return undefined;
    }
  }

  /** Close the connection; a later call opens it again. */
  close() {
    this.#opening = undefined;
    this.#socket?.destroy();
    this.#failAll("the connection closed");
  }

  async #open() {
    const { socket: path, port, token, proof } = parsed(readFileSync(this.endpoint, "utf8"));
    if (!token || !proof) throw new Error("its endpoint file is damaged");
    const socket = connect(path ? { path } : { port, host: "127.0.0.1" });
    this.#socket = socket;
    let rest = "";
    socket.setEncoding("utf8");
    socket.on("data", (text) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) this.#receive(line);
      if (rest.length > LINE_CHARS_MAX) socket.destroy();
    });
    socket.on("error", ({ code }) => socket === this.#socket && this.#failAll(code));
    socket.on("close", () => socket === this.#socket && this.close());
    // A connection that waits for nothing must not keep a one-shot process alive.
    socket.unref();
    const hello = JSON.stringify({ ...this.hello, token });
    const welcome = await this.#ask("hello", hello, HELLO_MS);
    if (welcome?.proof !== proof) throw new Error("something else listens there");
    this.welcome = welcome;
  }

  async #answered(method, params, deadlineMs) {
    const beganAt = performance.now();
    try {
      const result = await this.#ask(method, params, deadlineMs);
      this.#noteSuccess();
      return result;
    } catch (error) {
      const late = error instanceof Late;
      if (late ? this.#hangs(beganAt) : !(error instanceof Refused)) throw error;
      this.logger.warn(`memrelay: a call was without memory (${error.message})`);
      return late ? undefined : null;
    }
  }

  /** Note that a call is late; return whether the gateway hangs. */
  #hangs(beganAt) {
    if (beganAt < this.#lateAt) return false; // calls at once are late for one and the same reason
    this.#lateAt = performance.now();
    return ++this.#late >= LATE_MAX;
  }

  #ask(method, params, deadlineMs) { // `params` in JSON
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      // Closed since the call began: nobody would fail it before its deadline.
      if (this.#socket.destroyed) throw new Error("the connection closed");
      const settle = (how, value) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        how(value);
      };
      const fail = (error) => settle(reject, error);
      const timer = setTimeout(() => fail(new Late("no answer in time")), deadlineMs);
      this.#waiting.set(id, { answer: (result) => settle(resolve, result), fail });
      const call = JSON.stringify({ jsonrpc: "2.0", id, method });
      this.#socket.write(`${call.slice(0, -1)},"params":${params}}\n`);
    });
  }

  #receive(line) {
    this.#late = 0;
    const { id, error, result = null } = parsed(line);
    const waiting = this.#waiting.get(id);
    if (error) waiting?.fail(new Refused(error.message));
    else waiting?.answer(result);
  }

  #failAll(why) {
    for (const { fail } of this.#waiting.values()) fail(new Error(why));
  }

  #noteSuccess() {
    if (this.#pauseMs) this.logger.info("memrelay: the gateway answers again.");
    this.#pauseMs = 0;
  }

  #noteFailure(error) {
    if (performance.now() < this.#retryAt) return; // a call that failed with another one
    if (!this.#pauseMs) {
      const why = error.code ?? error.message;
      this.logger.warn(
        `memrelay: turns go on without memory; is \`memrelay gateway\` running? (${why})`,
      );
    }
    this.#pauseMs = Math.min(Math.max(2 * this.#pauseMs, PAUSE_MS_MIN), PAUSE_MS_MAX);
    this.#retryAt = performance.now() + this.#pauseMs;
    this.close();
  }
}

/** Return the object that a text is in JSON, or an empty one. */
function parsed(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {}; // an error of the parser would quote the text, such as a token, in the log
  }
}
