/**
 * Every error the client throws: one tree, branched by who must act.
 *
 *     MemrelayError
 *     ├── ConfigError              a setting, profile or argument is missing or wrong
 *     ├── NotGranted               this key holds no grant for the namespace that was asked for
 *     ├── TransportError           the relayer was not reached, or its answer got lost
 *     │   └── TimedOut             no answer within the time allowed
 *     ├── Invalid                  bytes that do not verify, open or parse (`.code`: which check)
 *     │   ├── UntrustedGrant       a grant, revocation or chain that leads to no founder
 *     │   └── UntrustedRelayer     another relayer, a rollback, a false statement or receipt
 *     └── ServerError              the relayer answered with an error: `.status`, `.code`
 *         ├── BadRequest      400
 *         ├── NotAuthenticated 401
 *         ├── QuotaExceeded   402
 *         ├── NotAllowed      403
 *         ├── NotFound        404
 *         ├── Conflict        409
 *         ├── TooLarge        413
 *         ├── Misdirected     421
 *         ├── UpgradeRequired 426
 *         ├── RateLimited     429  `.retryAfterS`
 *         ├── NotOffered      501
 *         └── Unavailable     502, 503, 504  `.retryAfterS`
 *
 * No message holds a memory's text, a query or a key. An `AbortSignal` throws its own reason.
 */

/** Anything this package throws on purpose. */
export class MemrelayError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A setting, a profile or an argument is missing or wrong. */
export class ConfigError extends MemrelayError {}

/** This key holds no valid grant for what was asked; the relayer was not even tried. */
export class NotGranted extends MemrelayError {}

/**
 * The relayer was not reached, or the connection broke before its answer was complete.
 *
 * `sent` is false when the request certainly never left this machine. Browsers never tell that.
 */
export class TransportError extends MemrelayError {
  readonly sent: boolean;

  constructor(message: string, options: ErrorOptions & { sent?: boolean } = {}) {
    super(message, options);
    this.sent = options.sent ?? true;
  }
}

/** No answer, or no final state, within the time allowed. */
export class TimedOut extends TransportError {}

/** Bytes that do not verify, open or parse; `code` is a fixed word naming the failed check. */
export class Invalid extends MemrelayError {
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** A grant, a revocation or a chain of them that does not hold up against the founder's key. */
export class UntrustedGrant extends Invalid {}

/** The relayer is another one than the pinned one, rolls back, or signed something false. */
export class UntrustedRelayer extends Invalid {}

/** The members of an answer that says no. */
export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;
  readonly retryAfterS: number | null;
}

/** The relayer's own answer to a request that it did not carry out. */
export class ServerError extends MemrelayError implements Refusal {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;
  readonly retryAfterS: number | null;
  /** The relayer's own words, without status and code. */
  readonly reason: string;

  constructor(reason: string, refusal: Refusal) {
    const reference = refusal.requestId ? `, request ${refusal.requestId}` : "";
    super(`${reason} (${refusal.status} ${refusal.code}${reference})`);
    this.reason = reason;
    this.status = refusal.status;
    this.code = refusal.code;
    this.requestId = refusal.requestId;
    this.retryAfterS = refusal.retryAfterS;
  }
}

/** 400: the request is malformed or out of range. */
export class BadRequest extends ServerError {}

/** 401: unknown key, wrong signature, or a clock more than 300 s off. */
export class NotAuthenticated extends ServerError {}

/** 402: the account's storage is used up. */
export class QuotaExceeded extends ServerError {}

/** 403: this key lacks a role, a namespace or an unlock. */
export class NotAllowed extends ServerError {}

/** 404: absent, or somebody else's; what is no relayer, and knows no route, is not meant. */
export class NotFound extends ServerError {}

/** 409: an idempotency key came back with another body, or a serial is taken. */
export class Conflict extends ServerError {}

/** 413: a limit of the relayer. */
export class TooLarge extends ServerError {}

/** 421: the unlock header names a key that the relayer no longer holds. */
export class Misdirected extends ServerError {}

/** 426: this client is too old for the relayer. */
export class UpgradeRequired extends ServerError {}

/** 429: too many requests; `retryAfterS` says when to come back. */
export class RateLimited extends ServerError {}

/** 501: the relayer was set up without what that takes, such as a language model. */
export class NotOffered extends ServerError {}

/** 502, 503, 504: the relayer or something behind it is away. */
export class Unavailable extends ServerError {}

const BY_STATUS: ReadonlyMap<number, typeof ServerError> = new Map<number, typeof ServerError>([
  [400, BadRequest],
  [401, NotAuthenticated],
  [402, QuotaExceeded],
  [403, NotAllowed],
  [404, NotFound],
  [409, Conflict],
  [413, TooLarge],
  [421, Misdirected],
  [426, UpgradeRequired],
  [429, RateLimited],
  [501, NotOffered],
  [502, Unavailable],
  [503, Unavailable],
  [504, Unavailable],
]);

const MESSAGE_CHARS_MAX = 300;
const RETRY_AFTER_S_MAX = 86_400;

/** Returns the error for an answer: `body` is its parsed JSON, or anything when it had none. */
export function serverError(status: number, body: unknown, headers: Headers): ServerError {
  const known = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  let reason =
    readLine(known["message"]) || readLine(known["error"]) || `The relayer answered ${status}.`;
  if (headers.get("x-auth-error") === "ERR_TIMESTAMP_OUT_OF_BOUNDS") {
    reason += " This machine's clock differs from the relayer's by more than 300 s.";
  }
  const kind = BY_STATUS.get(status) ?? ServerError;
  return new kind(reason, {
    status,
    code: readLine(known["code"]) || `http.${status}`,
    requestId: readLine(known["request_id"]) || null,
    retryAfterS: readRetryAfter(headers.get("retry-after")),
  });
}

/** Returns the error for an answer that does not hold what it has to. */
export function malformedAnswer(what: string): ServerError {
  return new ServerError(`The relayer's answer is malformed at ${what}.`, {
    status: 200,
    code: "answer.malformed",
    requestId: null,
    retryAfterS: null,
  });
}

/** One line of text, empty where there is none: a terminal must not obey what is sent. */
function readLine(value: unknown): string {
  if (typeof value !== "string") return "";
  return value
    .slice(0, MESSAGE_CHARS_MAX)
    .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ")
    .trim();
}

function readRetryAfter(value: string | null): number | null {
  if (value === null || !/^\d{1,9}$/.test(value.trim())) return null;
  return Math.min(Number(value), RETRY_AFTER_S_MAX);
}
