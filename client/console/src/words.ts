// Compares two texts word by word, and finds words in a text by how they begin.

export interface Piece {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
}

const STEM_CHARACTERS_MIN = 3; // shorter ones begin too many words
const WORDS_MAX = 600; // of each text: the table below has their product of entries

/** Returns what was kept, added and removed; long texts are compared as wholes. */
export function differ(before: string, after: string): Piece[] {
  const [old, now] = [split(before), split(after)];
  if (old.length > WORDS_MAX || now.length > WORDS_MAX) {
    return before === after
      ? [{ kind: "same", text: after }]
      : [{ kind: "removed", text: before }, { kind: "added", text: after }];
  }
  // lengths[i][j]: words that the rests from i and j have in common, in order
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] =
        old[i] === now[j]
          ? (lengths[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(lengths[(i + 1) * width + j] ?? 0, lengths[i * width + j + 1] ?? 0);
    }
  }
  return walk(old, now, lengths, width);
}

function walk(old: readonly string[], now: readonly string[], lengths: Uint16Array, width: number): Piece[] {
  const pieces: Piece[] = [];
  const add = (kind: Piece["kind"], text: string): void => {
    const last = pieces.at(-1);
    if (last?.kind === kind) pieces[pieces.length - 1] = { kind, text: last.text + text };
    else pieces.push({ kind, text });
  };
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      add("same", now[j] ?? "");
      i += 1;
      j += 1;
    } else if (
      i < old.length &&
      (j === now.length || (lengths[(i + 1) * width + j] ?? 0) >= (lengths[i * width + j + 1] ?? 0))
    ) {
      add("removed", old[i] ?? "");
      i += 1;
    } else {
      add("added", now[j] ?? "");
      j += 1;
    }
  }
  return pieces;
}

function split(text: string): string[] {
  return text.match(/\s*\S+\s*$|\s*\S+/g) ?? [];
}

const WORD = /[\p{L}\p{M}\p{N}]+/gu;

/** Returns the words of a question that these stems come from; a stem without one stands for itself. */
export function wordsOfStems(question: string, stems: readonly string[]): string[] {
  const words = question.match(WORD) ?? [];
  const found = stems.map((stem) => words.find((word) => beginsWith(word, [stem])) ?? stem);
  return [...new Set(found)];
}

/** Returns a text in pieces; those are marked that begin with one of the stems. */
export function markStems(text: string, stems: readonly string[]): readonly (readonly [text: string, isMarked: boolean])[] {
  const pieces: [string, boolean][] = [];
  let end = 0;
  for (const match of text.matchAll(WORD)) {
    if (!beginsWith(match[0], stems)) continue;
    pieces.push([text.slice(end, match.index), false], [match[0], true]);
    end = match.index + match[0].length;
  }
  return [...pieces, [text.slice(end), false]];
}

function beginsWith(word: string, stems: readonly string[]): boolean {
  const plain = word.toLocaleLowerCase();
  return stems.some((stem) => plain === stem || (stem.length >= STEM_CHARACTERS_MIN && plain.startsWith(stem)));
}
