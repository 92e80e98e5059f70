// Shows what differs between two texts, for eyes and for screen readers.

import { h, type Child } from "./dom.ts";
import { texts } from "./texts.ts";
import { differ, type Piece } from "./words.ts";

const SAME_SHARE_MIN = 0.4; // of the characters: else nearly all would be marked

/** Returns the later of two texts, with what was added to the earlier one and what was taken from it. */
export function difference(before: string, after: string): HTMLElement[] {
  const t = texts.detail;
  return differ(before, after).map(({ kind, text }) => {
    if (kind === "same") return h("span", {}, text);
    const said = h("span", { class: "visually-hidden" }, ` [${kind === "added" ? t.added : t.removed}: `);
    return h(kind === "added" ? "ins" : "del", {}, said, text, h("span", { class: "visually-hidden" }, "] "));
  });
}

/** Returns two texts for beside each other, with what only one of them says; as they are if they are unlike. */
export function contrast(before: string, after: string): readonly [Child, Child] {
  const pieces = differ(before, after);
  const same = pieces.filter(({ kind }) => kind === "same").reduce((sum, { text }) => sum + text.length, 0);
  if (same < SAME_SHARE_MIN * Math.max(before.length, after.length)) return [before, after];
  const side = (kind: Piece["kind"], tag: "del" | "ins"): Child =>
    pieces
      .filter((piece) => piece.kind === "same" || piece.kind === kind)
      .map((piece) => (piece.kind === "same" ? piece.text : h(tag, { class: "unlike" }, piece.text)));
  return [side("removed", "del"), side("added", "ins")];
}
