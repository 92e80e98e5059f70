/**
 * Bytes as text and back: UTF-8, hexadecimal, base64, big-endian integers.
 *
 * Every reader takes the canonical form alone.
 *
 * Source: SPEC.md §2.
 */

import { Invalid } from "./errors.ts";

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL = BASE64.slice(0, 62) + "-_";
const NO_DIGIT = 255;

/** Bytes in a buffer of their own, as WebCrypto and `fetch` take them. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Returns the UTF-8 bytes of a text. */
export function utf8(text: string): Bytes {
  return ENCODER.encode(text);
}

/** Returns the text of UTF-8 bytes; throws a TypeError for others. A byte order mark stays. */
export function fromUtf8(data: Uint8Array): string {
  return DECODER.decode(data);
}

/** Returns all parts, joined. */
export function concat(...parts: readonly Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Returns the four bytes of a u32. */
export function u32(value: number): Bytes {
  const data = new Uint8Array(4);
  new DataView(data.buffer).setUint32(0, value);
  return data;
}

/** Returns a view for reading integers. */
export function viewOf(data: Uint8Array): DataView {
  return new DataView(data.buffer, data.byteOffset, data.byteLength);
}

/** Returns whether two arrays hold the same bytes, in a time that their length alone decides. */
export function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false;
  let differing = 0;
  for (let at = 0; at < left.length; at++) differing |= left[at]! ^ right[at]!;
  return differing === 0;
}

/** Returns lower-case hexadecimal digits. */
export function toHex(data: Uint8Array): string {
  let text = "";
  for (const byte of data) text += byte.toString(16).padStart(2, "0");
  return text;
}

/**
 * Returns the bytes of exactly `size` bytes of lower-case hex.
 *
 * @throws {Invalid} `hex`, when `text` is anything else.
 */
export function fromHex(text: unknown, size: number, what: string): Bytes {
  if (typeof text !== "string" || text.length !== 2 * size || !/^[0-9a-f]*$/.test(text)) {
    throw new Invalid("hex", `A ${what} is ${2 * size} lower-case hexadecimal digits.`);
  }
  const data = new Uint8Array(size);
  for (let at = 0; at < size; at++) data[at] = parseInt(text.slice(2 * at, 2 * at + 2), 16);
  return data;
}

/** Returns padded standard base64. */
export function toBase64(data: Uint8Array): string {
  const text = encode64(data, BASE64);
  return text + "=".repeat(-text.length & 3);
}

/** Returns unpadded base64url. */
export function toBase64Url(data: Uint8Array): string {
  return encode64(data, BASE64_URL);
}

/**
 * Returns the bytes of canonical padded base64.
 *
 * @throws {Invalid} `base64`, when `text` is anything else.
 */
export function fromBase64(text: unknown, what: string): Bytes {
  const data = typeof text === "string" ? decode64(text) : null;
  if (data === null) throw new Invalid("base64", `A ${what} is padded base64.`);
  return data;
}

function encode64(data: Uint8Array, alphabet: string): string {
  const pieces: string[] = [];
  let text = "";
  for (let at = 0; at < data.length; at += 3) {
    const left = data.length - at;
    const bits = (data[at]! << 16) | ((data[at + 1] ?? 0) << 8) | (data[at + 2] ?? 0);
    text += alphabet[bits >> 18]! + alphabet[(bits >> 12) & 63]!;
    if (left > 1) text += alphabet[(bits >> 6) & 63]!;
    if (left > 2) text += alphabet[bits & 63]!;
    if (text.length > 8192) {
      pieces.push(text);
      text = "";
    }
  }
  return pieces.join("") + text;
}

const DIGITS = new Uint8Array(128).fill(NO_DIGIT);
for (let value = 0; value < 64; value++) DIGITS[BASE64.charCodeAt(value)] = value;

function decode64(text: string): Bytes | null {
  if (text.length % 4 !== 0) return null;
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const digits = text.length - padding;
  const data = new Uint8Array((text.length / 4) * 3 - padding);
  let bits = 0;
  let at = 0;
  for (let index = 0; index < digits; index++) {
    const digit = DIGITS[text.charCodeAt(index)] ?? NO_DIGIT;
    if (digit === NO_DIGIT) return null;
    bits = ((bits << 6) | digit) & 0xffffff;
    const have = (index % 4) * 6 + 6;
    if (have > 6) data[at++] = (bits >> (have % 8)) & 255;
  }
  // The bits that the padding leaves over are zero, or the text has a second spelling.
  const over = padding === 2 ? 4 : padding === 1 ? 2 : 0;
  return (bits & ((1 << over) - 1)) === 0 ? data : null;
}
