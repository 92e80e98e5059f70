/**
 * The check of what a webhook is told, where it comes in.
 *
 * Not here: a web server; the requests of an account's owner (`operations/notifying.ts`).
 *
 * - A body is believed only after its signature was checked, in constant time, and its time is near.
 * - What was told once may be told again: the event's `id` is the same then.
 *
 * Source: SPEC.md §18.
 */

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";

import { type Bytes, concat, fromBase64, sameBytes, toBase64, utf8 } from "./bytes.ts";
import { ConfigError, Invalid, ServerError } from "./errors.ts";
import { type MemoryEvent, readEvent } from "./operations/following.ts";

const TOLERANCE_S = 300;
const SECRET_PREFIX = "whsec_";
const SECRET_BYTES_MIN = 24;

/** The headers of a request, as a web server has them. */
export type WebhookHeaders =
  Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** What happened, by ids alone. */
export type WebhookEvent = Omit<MemoryEvent, "place">;

/**
 * Returns the event that a webhook was told, if it is one of this secret and of these minutes.
 *
 * `body` are the bytes as they came: parsed and written anew, they are others.
 *
 * @throws {Invalid} it is not (`webhook.headers`, `.signature`, `.time` or `.body`).
 * @throws {ConfigError} the secret is none.
 */
export function verifyWebhook(
  headers: WebhookHeaders,
  body: Uint8Array | string,
  secret: string,
  options: { readonly nowMs?: number; readonly toleranceS?: number } = {},
): WebhookEvent {
  const { nowMs = Date.now(), toleranceS = TOLERANCE_S } = options;
  const [id, seconds, signatures] = ["id", "timestamp", "signature"].map((name) =>
    headerOf(headers, `webhook-${name}`),
  ) as [string, string, string];
  const data = typeof body === "string" ? utf8(body) : body;
  const signed = concat(utf8(`${id}.${seconds}.`), data);
  const wanted = utf8(`v1,${toBase64(hmac(sha256, keyOf(secret), signed))}`);
  if (!signatures.split(" ").some((one) => sameBytes(utf8(one), wanted))) {
    throw new Invalid("webhook.signature", "The webhook is not signed with this secret.");
  }
  const isNear = Math.abs(nowMs / 1000 - Number(seconds)) <= toleranceS;
  if (!/^[0-9]+$/.test(seconds) || !isNear) {
    const told = "The webhook was signed too long ago, or too far ahead.";
    throw new Invalid("webhook.time", told);
  }
  const event = readBody(data);
  if (event.id !== id) {
    throw new Invalid("webhook.body", "The webhook's body is of another event.");
  }
  return event;
}

function headerOf(headers: WebhookHeaders, name: string): string {
  const found =
    headers instanceof Headers
      ? headers.get(name)
      : Object.entries(headers).find(([given]) => given.toLowerCase() === name)?.[1];
  if (typeof found !== "string" || found === "") {
    throw new Invalid("webhook.headers", "The headers of a webhook are missing.");
  }
  return found;
}

function readBody(data: Uint8Array): WebhookEvent {
  try {
    return readEvent(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch (error) {
    if (!(error instanceof ServerError || error instanceof TypeError)) throw error;
    throw new Invalid("webhook.body", "The webhook's body is no event.");
  }
}

function keyOf(secret: string): Bytes {
  try {
    const text = secret.startsWith(SECRET_PREFIX) ? secret.slice(SECRET_PREFIX.length) : secret;
    const key = fromBase64(text, "secret");
    if (key.length >= SECRET_BYTES_MIN) return key; // an empty key would sign for anybody
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
  }
  throw new ConfigError("The webhook's secret is none: whsec_ and base64.");
}
