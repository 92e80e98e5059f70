// Agents and keys: who may do what; admitting, revoking and replacing; a key on paper.
//
// Not here: new keys for everybody (`rotation.ts`).

import type { Wish } from "../access.ts";
import { relayerUrl } from "../connect.ts";
import type { Context } from "../context.ts";
import { button, field, fill, h, prose, select, type Child } from "../dom.ts";
import { formatDay, formatTime, shorten } from "../format.ts";
import type { Key } from "../records.ts";
import { announce, ask, attempt, showDialog } from "../shell.ts";
import { texts } from "../texts.ts";
import { rotationPart, type RotationPart } from "./rotation.ts";

export function keysView(context: Context): HTMLElement {
  const t = texts.keys;
  const table = h("div", {}, h("p", { class: "hint" }, texts.loading));
  const { isOwner, publicKey } = context.access;
  const refresh = async (): Promise<void> => {
    const keys = await context.access.keys();
    fill(table, keyTable(context, keys, rotation, refresh));
    rotation?.offer(keys.filter((key) => isRevocable(key, publicKey) && !isOver(key)));
  };
  const rotation = isOwner ? rotationPart(context, (key) => nameOf(key, publicKey), refresh) : null;
  void attempt(refresh);
  return h(
    "div",
    {},
    h("h1", {}, t.title),
    h("p", { class: "hint" }, t.lead),
    table,
    rotation ? [admitForm(context, refresh), recovery(context, refresh), rotation.element] : h("p", { class: "notice" }, t.ownersOnly),
  );
}

function nameOf(key: Key, own: string): string {
  if (key.label) return key.label;
  return key.public_key === own ? texts.thisKey : texts.unnamedKey(shorten(key.public_key));
}

function isOver(key: Key): boolean {
  return key.expires_at !== null && Date.parse(key.expires_at) <= Date.now();
}

/** Returns whether somebody may take a key's rights away here: it has some, and is not this one. */
function isRevocable(key: Key, own: string): boolean {
  return !key.revoked && key.public_key !== own && key.role !== "custodian";
}

function keyTable(
  context: Context,
  keys: readonly Key[],
  rotation: RotationPart | null,
  refresh: () => Promise<void>,
): HTMLElement {
  const t = texts.keys;
  const own = context.access.publicKey;
  const isOwner = rotation !== null;
  const buttons = (key: Key): Child =>
    h(
      "div",
      { class: "buttons" },
      isOver(key) || !rotation ? null : replaceButton(context, key, rotation, refresh),
      revokeButton(context, key, refresh),
    );
  const state = (key: Key): Child => {
    if (key.revoked) return h("span", { class: "mark" }, t.revoked);
    return isOver(key) ? h("span", { class: "mark" }, t.expired) : formatTime(key.expires_at, texts.never);
  };
  const row = (key: Key): HTMLElement =>
    h(
      "tr",
      { class: key.revoked ? "gone" : null },
      h(
        "th",
        { scope: "row" },
        nameOf(key, own),
        " ",
        h("code", { title: key.public_key }, shorten(key.public_key)),
        key.public_key === own ? h("span", { class: "mark" }, texts.thisKey) : null,
      ),
      h("td", { "data-label": t.columns[1] }, t.roles[key.role] ?? key.role),
      h("td", { "data-label": t.columns[2] }, key.namespaces === null ? t.whole : key.namespaces.map((one) => h("span", { class: "tag" }, one))),
      h("td", { "data-label": t.columns[3] }, formatDay(key.created_at)),
      h("td", { "data-label": t.columns[4] }, formatTime(key.last_used_at, texts.never)),
      h("td", { "data-label": t.columns[5] }, state(key)),
      isOwner
        ? h("td", {}, isRevocable(key, own) ? buttons(key) : null)
        : null,
    );
  const columns = isOwner ? t.columns : t.columns.slice(0, -1);
  return h(
    "table",
    { class: "stack keys" },
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, keys.map(row)),
  );
}

function revokeButton(context: Context, key: Key, refresh: () => Promise<void>): HTMLElement {
  const t = texts.keys;
  const name = nameOf(key, context.access.publicKey);
  return button(
    t.revoke,
    async () => {
      let isDone = false;
      await ask({
        title: t.revokeTitle(name),
        body: [h("p", {}, h("code", {}, key.public_key)), h("p", {}, prose(t.revokeSure))],
        confirm: t.revoke,
        isDangerous: true,
        act: async () => {
          await context.access.revoke(key.public_key);
          isDone = true;
        },
      });
      if (!isDone) return;
      announce(t.revokeDone(name));
      await attempt(refresh);
    },
    { class: "danger", "aria-label": `${t.revoke}: ${name}` },
  );
}

function replaceButton(
  context: Context,
  key: Key,
  rotation: RotationPart,
  refresh: () => Promise<void>,
): HTMLElement {
  const t = texts.keys;
  const name = nameOf(key, context.access.publicKey);
  const press = async (): Promise<void> => {
    let isDone = false;
    const fingerprint = h("p", { role: "status" });
    const show = (): void => {
      try {
        fill(fingerprint, t.fingerprint(context.access.readJoinRequest(request.value).fingerprint));
      } catch {
        fill(fingerprint); // what is typed so far is none
      }
    };
    const request = h("textarea", { rows: 4, spellcheck: "false", autocomplete: "off", class: "code", input: show });
    await ask({
      title: t.replaceTitle(name),
      body: [h("p", {}, prose(t.replaceLead)), field(t.request, request, t.requestHelp), fingerprint],
      confirm: t.replace,
      isDangerous: true,
      act: async () => {
        await context.access.replace(key.public_key, request.value, name);
        isDone = true;
      },
    });
    if (!isDone) return;
    announce(t.replaceDone(name));
    await attempt(async () => {
      await refresh();
      await rotation.follow();
    });
  };
  return button(t.replace, press, { "aria-label": `${t.replace}: ${name}` });
}

function admitForm(context: Context, refresh: () => Promise<void>): HTMLElement {
  const t = texts.keys;
  const request = h("textarea", { rows: 4, spellcheck: "false", autocomplete: "off", class: "code" });
  const wish = h("div");
  const look = (): void => {
    const joining = context.access.readJoinRequest(request.value);
    const name = h("input", { type: "text", value: joining.label, maxlength: 128, autocomplete: "off" });
    const where = h("textarea", { rows: 2, spellcheck: "false" }, joining.label);
    const whereField = field(t.where, where, t.whereHelp);
    const role = select(
      [["writer", t.roles["writer"] ?? ""], ["reader", t.roles["reader"] ?? ""], ["owner", t.roles["owner"] ?? ""]],
      "writer",
      (value) => {
        whereField.hidden = value === "owner";
      },
    );
    const admit = async (): Promise<void> => {
      const names = where.value.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);
      const label = name.value.trim() || joining.label;
      const chosen = role.value as Wish["role"];
      const namespaces = chosen === "owner" ? null : names;
      await context.access.admit(request.value, { role: chosen, namespaces, label });
      request.value = "";
      fill(wish);
      announce(t.admitted(label || shorten(joining.recipient)));
      await refresh();
    };
    fill(
      wish,
      h("p", {}, t.asks(joining.label), " ", t.fingerprint(joining.fingerprint)),
      h("p", {}, h("code", {}, joining.recipient)),
      field(t.name, name),
      field(t.role, role),
      whereField,
      h("div", { class: "buttons" }, button(t.admitDo, () => attempt(admit), { class: "primary" })),
    );
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, t.admit),
    h("p", { class: "hint" }, prose(t.admitLead)),
    field(t.request, request, t.requestHelp),
    h("div", { class: "buttons" }, button(t.read, () => attempt(look))),
    wish,
  );
}

function recovery(context: Context, refresh: () => Promise<void>): HTMLElement {
  const t = texts.keys;
  const make = async (): Promise<void> => {
    const lines = await context.access.addRecoveryKey(t.recoveryLabel);
    if (context.store.isEnded) return; // a locked page shows no key; it stands among the keys
    await showDialog(t.recoverySheet, (close) => recoverySheet(context, lines, close));
    await refresh();
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, t.recovery),
    h("p", {}, t.recoveryLead),
    h("div", { class: "buttons" }, button(t.recoveryMake, () => attempt(make))),
  );
}

/** Returns the sheet for paper. Its lines are in this element alone, which closing takes away. */
function recoverySheet(context: Context, lines: readonly string[], close: () => void): Child {
  const t = texts.keys;
  const facts: readonly (readonly [string, string])[] = [
    [t.recoveryAddress, relayerUrl()],
    [texts.account, context.access.accountId],
    [t.recoveryRelayerKey, context.access.relayerKey],
  ];
  return [
    h("p", {}, t.recoveryOnce),
    h("ol", { class: "recovery" }, lines.map((line) => h("li", {}, h("code", {}, line)))),
    h("dl", { class: "sheet" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("code", {}, value))))),
    h("p", {}, prose(t.recoveryUse)),
    h("p", { class: "hint" }, t.recoveryLost),
    h("div", { class: "buttons" }, button(t.recoveryPrint, () => window.print(), { class: "primary" }), button(t.recoveryDone, close)),
  ];
}
