// New keys for everybody: who is left out, what is sealed anew, and how far that is.

import type { Resealing, SealingProgress } from "../access.ts";
import type { Context } from "../context.ts";
import { button, field, fill, h, prose, select, type Child } from "../dom.ts";
import type { Key } from "../records.ts";
import { announce, ask, attempt } from "../shell.ts";
import { texts } from "../texts.ts";

/** The part of the page on rotation; it goes on with what an earlier visit began. */
export interface RotationPart {
  readonly element: HTMLElement;
  /** Offers these keys to be left out. */
  offer(keys: readonly Key[]): void;
  /** Lends the relayer keys until all that was chosen is sealed anew. */
  follow(): Promise<void>;
}

export function rotationPart(
  context: Context,
  nameOf: (key: Key) => string,
  refresh: () => Promise<void>,
): RotationPart {
  const t = texts.rotation;
  const choices = h("fieldset", {});
  const status = h("div", { role: "status" });
  const reseal = select(
    [["revoked", t.reseal.revoked], ["all", t.reseal.all], ["none", t.reseal.none]],
    "revoked",
  );
  const leaving = new AbortController();
  context.onLeave(() => leaving.abort());

  const follow = async (): Promise<void> => {
    const { signal } = leaving;
    try {
      const tell = (progress: SealingProgress): void => fill(status, ...progressOf(progress));
      const ended = await context.access.finishRotation(tell, signal);
      fill(status, ended.remaining > 0 ? stopped(ended, follow) : h("p", {}, endOf(ended)));
    } catch (error) {
      if (!signal.aborted) throw error; // a page that was left goes on when it is opened again
    }
  };

  const rotate = async (): Promise<void> => {
    const boxes = [...choices.querySelectorAll<HTMLInputElement>("input:checked")];
    const out = boxes.map((box) => box.value);
    const names = boxes.map((box) => box.dataset["name"] ?? "");
    let isDone = false;
    await ask({
      title: t.sureTitle,
      body: [h("p", {}, names.length > 0 ? t.sureOut(names.join(", ")) : t.sureNobody), h("p", {}, t.sure)],
      confirm: t.act,
      isDangerous: true,
      act: async () => {
        await context.access.rotate(out, reseal.value as Resealing);
        isDone = true;
      },
    });
    if (!isDone) return;
    announce(t.done);
    await refresh();
    await follow();
  };

  const look = async (): Promise<void> => {
    const progress = await context.access.rotation(leaving.signal);
    if (progress.remaining > 0) fill(status, stopped(progress, follow));
  };
  void attempt(() => look().catch((error: unknown) => (leaving.signal.aborted ? undefined : Promise.reject(error))));

  return {
    element: h(
      "section",
      { class: "card" },
      h("h2", {}, t.title),
      h("p", {}, prose(t.lead)),
      choices,
      field(t.resealLabel, reseal, t.resealHelp),
      h("div", { class: "buttons" }, button(t.act, () => attempt(rotate), { class: "danger" })),
      status,
    ),
    offer: (keys) => {
      const boxes = keys.map((key) => {
        const name = nameOf(key);
        return h("label", { class: "check" }, h("input", { type: "checkbox", value: key.public_key, "data-name": name }), " ", name);
      });
      fill(choices, h("legend", {}, t.out), boxes.length > 0 ? boxes : h("p", { class: "hint" }, t.nobodyElse));
    },
    follow,
  };
}

function progressOf({ done, total }: SealingProgress): Child[] {
  const t = texts.rotation;
  return [h("progress", { max: Math.max(1, total), value: done, "aria-label": t.progress }), h("p", {}, t.sealed(done, total))];
}

function stopped(progress: SealingProgress, follow: () => Promise<void>): HTMLElement {
  const t = texts.rotation;
  const goOn = button(t.goOn, () => attempt(follow), { class: "primary" });
  return h("div", {}, h("p", {}, t.left(progress.remaining)), h("div", { class: "buttons" }, goOn));
}

function endOf({ older }: SealingProgress): string {
  const t = texts.rotation;
  return older > 0 ? t.older(older) : t.all;
}
