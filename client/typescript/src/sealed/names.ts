/**
 * Names of namespaces: their normal form, and what no name may hold.
 *
 * Source: SPEC.md §3.
 */

import { Invalid } from "../errors.ts";

const CHARS_MAX = 128;
// No character of a normal form is spelt with more than four, so no valid name is longer.
const SPELT_MAX = 4 * CHARS_MAX;

const REFUSED = /[\p{Cc}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u;
const BLANK_AT_AN_END = /^\p{Zs}|\p{Zs}$/u;
// Ignorable by default, other controls of formats, and blanks that are no white space.
const UNSEEN = new RegExp(
  "[\\u{ad}\\u{34f}\\u{61c}\\u{115f}\\u{1160}\\u{17b4}\\u{17b5}\\u{180b}-\\u{180f}" +
    "\\u{200b}-\\u{200f}\\u{202a}-\\u{202e}\\u{2060}-\\u{206f}\\u{2800}\\u{3164}" +
    "\\u{fe00}-\\u{fe0f}\\u{feff}\\u{ffa0}\\u{fff0}-\\u{fffb}\\u{13430}-\\u{1343f}" +
    "\\u{1bca0}-\\u{1bca3}\\u{1d159}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]",
  "u",
);
// Letters and marks of scripts, from Arabic on, that change their form by a joiner between them.
const WRITTEN_WITH_JOINERS = new RegExp(
  "^(?=[\\p{L}\\p{M}])[\\u{600}-\\u{109f}\\u{1780}-\\u{1cff}\\u{a800}-\\u{abff}" +
    "\\u{10a00}-\\u{10fff}\\u{11000}-\\u{11fff}\\u{1e900}-\\u{1e95f}]$",
  "u",
);

/**
 * Returns the form of a namespace name that everything but the request body uses.
 *
 * @throws {Invalid} `namespace`, when the name is empty, too long or holds a refused character.
 */
export function normaliseNamespace(name: string): string {
  const text = normalise(name);
  const chars = [...text];
  chars.forEach((char, at) => {
    if (UNSEEN.test(char) && !isJoiner(chars, at)) {
      const code = char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
      throw new Invalid("namespace", `A namespace name holds U+${code}, which nobody sees.`);
    }
  });
  return text;
}

/**
 * Returns a name as something signed holds it: normalised, by the rules that always were.
 *
 * @throws {Invalid} `namespace`, when it is not.
 */
export function settleNamespace(name: string): string {
  if (normalise(name) !== name) {
    throw new Invalid("namespace", "A namespace is named in its normal form.");
  }
  return name;
}

function isJoiner(chars: readonly string[], at: number): boolean {
  const beside = [chars[at - 1] ?? "", chars[at + 1] ?? ""];
  return (
    /[\u200c\u200d]/.test(chars[at]!) && beside.every((char) => WRITTEN_WITH_JOINERS.test(char))
  );
}

function normalise(name: string): string {
  const spelt = strip(name);
  if ([...spelt].length > SPELT_MAX) throw tooLong();
  const text = strip(spelt.normalize("NFC"));
  const size = [...text].length;
  if (size < 1 || size > CHARS_MAX) throw tooLong();
  if (REFUSED.test(text)) {
    throw new Invalid("namespace", "A namespace name holds no controls and nothing unassigned.");
  }
  if (BLANK_AT_AN_END.test(text)) {
    throw new Invalid("namespace", "A namespace name neither begins nor ends with white space.");
  }
  return text;
}

function tooLong(): Invalid {
  return new Invalid("namespace", "A namespace name has 1 to 128 characters.");
}

/** Takes U+0020 away at both ends, in a time that grows as the name does. */
function strip(text: string): string {
  let begin = 0;
  let end = text.length;
  while (begin < end && text[begin] === " ") begin++;
  while (end > begin && text[end - 1] === " ") end--;
  return text.slice(begin, end);
}
