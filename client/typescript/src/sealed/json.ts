/**
 * Strict JSON: read in one pass, in a time that grows as its length does.
 *
 * `JSON.parse` keeps the last of two members of one name, takes 1.0 for a whole number and rounds
 * what is too great, so it cannot tell what this must refuse.
 *
 * Source: SPEC.md §2.
 */

import { type Bytes, fromUtf8, utf8 } from "../bytes.ts";
import { Invalid } from "../errors.ts";

export const OBJECT_BYTES_MAX = 64 * 1024;
const DEPTH_MAX = 6;
const HALF_A_CHARACTER = /\p{Cs}/u;

/** A value of strict JSON. Objects have no prototype, so that any name is a plain member. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** An object of strict JSON. */
export interface JsonObject {
  [name: string]: JsonValue;
}

/** Returns compact UTF-8 JSON in the order of the members. */
export function writeJson(value: unknown): Bytes {
  return utf8(JSON.stringify(value));
}

/**
 * Returns the object of strict JSON that has exactly these members.
 *
 * @throws {Invalid} `json`, for any departure from the strict form; `members`, for another set.
 */
export function readJson(data: Uint8Array, members: readonly string[]): JsonObject {
  const value = readStrict(data);
  if (!hasMembers(value, members)) {
    throw new Invalid("members", "The object lacks a member or has one too many.");
  }
  return value;
}

/** Returns whether a value is an object with exactly these members. */
export function hasMembers(value: unknown, members: readonly string[]): value is JsonObject {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const names = Object.keys(value);
  return names.length === members.length && members.every((name) => Object.hasOwn(value, name));
}

/**
 * Returns the object of strict JSON, whatever its members are.
 *
 * @throws {Invalid} `json`, for any departure from the strict form.
 */
export function readStrict(data: Uint8Array): JsonObject {
  if (data.length > OBJECT_BYTES_MAX) throw new Invalid("json", "The object is over 64 KiB.");
  let text: string;
  try {
    text = fromUtf8(data);
  } catch (error) {
    throw new Invalid("json", "The object is no UTF-8.", { cause: error });
  }
  return new Reader(text).object();
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(?![0-9.eE])/y;
// eslint-disable-next-line no-control-regex
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const BLANK = /[ \t\n\r]*/y;
const WORD = /true|false|null/y;
const WORDS: ReadonlyMap<string, JsonValue> = new Map<string, JsonValue>([
  ["true", true],
  ["false", false],
  ["null", null],
]);

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  object(): JsonObject {
    this.#take(BLANK);
    if (this.#text[this.#at] !== "{") throw refuse();
    const value = this.#object(1);
    this.#take(BLANK);
    if (this.#at !== this.#text.length) throw refuse();
    return value;
  }

  #take(form: RegExp): string {
    form.lastIndex = this.#at;
    const found = form.exec(this.#text)?.[0];
    if (found === undefined) throw refuse();
    this.#at += found.length;
    return found;
  }

  #value(depth: number): JsonValue {
    this.#take(BLANK);
    switch (this.#text[this.#at]) {
      case "{":
        return this.#object(depth);
      case "[":
        return this.#list(depth);
      case '"':
        return this.#string();
      case "t":
      case "f":
      case "n":
        return WORDS.get(this.#take(WORD))!;
      default:
        return this.#number();
    }
  }

  #object(depth: number): JsonObject {
    const value = Object.create(null) as JsonObject;
    this.#each("}", depth, () => {
      this.#take(BLANK);
      const name = this.#string();
      this.#take(BLANK);
      if (this.#text[this.#at++] !== ":" || Object.hasOwn(value, name)) throw refuse();
      value[name] = this.#value(depth + 1);
    });
    return value;
  }

  #list(depth: number): JsonValue[] {
    const value: JsonValue[] = [];
    this.#each("]", depth, () => value.push(this.#value(depth + 1)));
    return value;
  }

  #each(end: string, depth: number, read: () => void): void {
    if (depth > DEPTH_MAX) throw new Invalid("json", "The object is nested too deeply.");
    this.#at++;
    this.#take(BLANK);
    if (this.#text[this.#at] === end) {
      this.#at++;
      return;
    }
    for (;;) {
      read();
      this.#take(BLANK);
      const next = this.#text[this.#at++];
      if (next === end) return;
      if (next !== ",") throw refuse();
    }
  }

  #string(): string {
    const value = JSON.parse(this.#take(STRING)) as string;
    if (HALF_A_CHARACTER.test(value)) throw new Invalid("json", "Text in strict JSON is UTF-8.");
    return value;
  }

  #number(): number {
    const digits = this.#take(NUMBER);
    const value = Number(digits);
    if (digits.length > 17 || !Number.isSafeInteger(value)) throw refuse();
    return value === 0 ? 0 : value;
  }
}

function refuse(): Invalid {
  return new Invalid("json", "The object is not strict JSON.");
}
