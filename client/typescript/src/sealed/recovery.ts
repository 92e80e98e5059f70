/**
 * A recovery key on paper: an owner's seed in four lines that a person can copy, each with a check.
 *
 * - Each line ends in a check of its own, so that a slip of the pen is found where it was made. The
 *   check also covers the account: a key of another one is told before anything is sent.
 *
 * Source: SPEC.md §16.
 */

import { type Bytes, concat, fromHex, sameBytes, toHex } from "../bytes.ts";
import { ConfigError } from "../errors.ts";
import { Identity } from "./keys.ts";
import { exact, mac } from "./primitives.ts";

const LINES = 4;
const LINE_BYTES = 8;
const CHECK_BYTES = 2;

/** Returns a recovery key: lines of four groups of four digits each, and a fifth, the check. */
export function recoveryLines(identity: Identity, account: Uint8Array): string[] {
  const seed = fromHex(identity.seedHex(), LINES * LINE_BYTES, "private key");
  return Array.from({ length: LINES }, (_, at) => {
    const part = seed.subarray(at * LINE_BYTES, (at + 1) * LINE_BYTES);
    const digits = toHex(concat(part, check(at + 1, part, account)));
    return digits.match(/.{4}/g)!.join(" ");
  });
}

/**
 * Returns the identity of a recovery key as it was typed: spaces and case do not matter.
 *
 * @throws {ConfigError} it has other than 80 digits, or a line does not match its check; the message
 *   names the line and repeats nothing of it.
 */
export function recoverIdentity(text: string, account: Uint8Array): Identity {
  const digits = text.replace(/[\s-]+/g, "").toLowerCase();
  const width = 2 * (LINE_BYTES + CHECK_BYTES);
  if (digits.length !== LINES * width || !/^[0-9a-f]*$/.test(digits)) {
    throw new ConfigError(`A recovery key has ${LINES} lines of 5 groups of 4 digits 0-9, a-f.`);
  }
  const lines = Array.from({ length: LINES }, (_, at) =>
    fromHex(digits.slice(at * width, (at + 1) * width), width / 2, "line"),
  );
  const wrong = lines.flatMap((line, at) => {
    const expected = check(at + 1, line.subarray(0, LINE_BYTES), account);
    return sameBytes(line.subarray(LINE_BYTES), expected) ? [] : [at + 1];
  });
  if (wrong.length === LINES) {
    throw new ConfigError("This recovery key is of another account, or mistyped in every line.");
  }
  if (wrong.length > 0) {
    const named = wrong.map((number) => `line ${number}`).join(" and ");
    throw new ConfigError(`The recovery key is mistyped in ${named}; nothing was sent.`);
  }
  return new Identity(concat(...lines.map((line) => line.subarray(0, LINE_BYTES))));
}

function check(line: number, part: Uint8Array, account: Uint8Array): Bytes {
  return mac(CHECK_BYTES, exact(account, 32, "account id"), "recovery", Uint8Array.of(line), part);
}
