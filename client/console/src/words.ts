// Compares two texts word by word.

export interface Piece {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
}

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
