// How keys come into this browser: kept ones, a profile file, a recovery key, new ones, a request.

import * as connect from "../connect.ts";
import { button, field, fill, h, newId, prose, type Child } from "../dom.ts";
import { parseAccountId, parseProfile, ProfileError, type Profile } from "../profile.ts";
import { ask, attempt } from "../shell.ts";
import { shorten } from "../format.ts";
import { texts } from "../texts.ts";
import * as vault from "../vault.ts";

type Opened = (profile: Profile) => Promise<void>;

export function openView(opened: Opened, notice: string | null): HTMLElement {
  const t = texts.open;
  const body = h("div");
  if (!isSecureContext) {
    return h("div", { class: "gate" }, h("h1", {}, t.title), h("p", { class: "notice" }, prose(t.insecure)));
  }
  const show = (): void => fill(body, keptKeys(opened, show), ways(body, opened));
  show();
  return h(
    "div",
    { class: "gate" },
    h("h1", {}, t.title),
    notice ? h("p", { class: "notice", role: "status" }, notice) : null,
    h("p", {}, t.lead),
    body,
    h("p", { class: "hint trust" }, prose(t.trust)),
  );
}

function keptKeys(opened: Opened, refresh: () => void): Child {
  const t = texts.open;
  const entries = vault.listEntries();
  if (entries.length === 0) return null;
  return h("section", { class: "card" }, h("h2", {}, t.kept), entries.map((entry) => keptEntry(entry, opened, refresh)));
}

function keptEntry(entry: vault.Entry, opened: Opened, refresh: () => void): HTMLElement {
  const t = texts.open;
  const remove = (): Promise<void> =>
    ask({
      title: t.removeKept(entry.label),
      body: h("p", {}, t.removeKeptSure),
      confirm: t.remove,
      isDangerous: true,
      act: () => {
        vault.removeEntry(entry);
        refresh();
      },
    });
  const named = h(
    "p",
    {},
    h("strong", {}, entry.label),
    " ",
    entry.label === shorten(entry.account) ? null : [h("code", {}, shorten(entry.account)), " "],
    h("span", { class: "hint" }, t.keptWith(entry)),
  );
  const taken = button(t.remove, remove, { class: "quiet", "aria-label": `${t.remove}: ${entry.label}` });
  if (entry.way === "passkey") {
    const open = button(t.openPasskey, () => attempt(async () => opened(await vault.openWithPasskey(entry))), {
      class: "primary",
    });
    return h("div", { class: "kept" }, named, h("div", { class: "buttons" }, open, taken));
  }
  const passphrase = h("input", { type: "password", autocomplete: "current-password", required: true });
  const open = h("button", { type: "submit", class: "primary" }, t.openKept);
  return form(
    async () => {
      const typed = passphrase.value;
      passphrase.value = "";
      await opened(await vault.openWithPassphrase(entry, typed));
    },
    { class: "kept" },
    named,
    field(t.passphrase, passphrase),
    h("div", { class: "buttons" }, open, taken),
  );
}

/** Returns a form whose work is done when it is sent, which nothing ever is. */
function form(work: () => Promise<void>, properties: Record<string, string>, ...children: Child[]): HTMLFormElement {
  const made: HTMLFormElement = h("form", { ...properties, method: "dialog", autocomplete: "off" }, children);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    const send = made.querySelector<HTMLButtonElement>("button[type=submit]");
    if (send?.getAttribute("aria-busy") === "true") return;
    send?.setAttribute("aria-busy", "true");
    void attempt(work).finally(() => send?.removeAttribute("aria-busy"));
  });
  return made;
}

function ways(body: HTMLElement, opened: Opened): HTMLElement {
  const t = texts.open;
  const keep = (profile: Profile, isNew: boolean): void => {
    fill(body, keepForm(profile, isNew, opened));
    body.querySelector<HTMLElement>("h2")?.focus();
  };
  const makers: Record<keyof typeof t.way, () => HTMLElement> = {
    file: () => fileForm(keep),
    recovery: () => recoveryForm(keep),
    found: () => foundForm(keep),
    join: () => joinForm(keep),
  };
  const panel = h("div", { class: "way" });
  const name = newId("way");
  const choose = (way: keyof typeof t.way): void => fill(panel, makers[way]());
  const choices = (Object.keys(makers) as (keyof typeof t.way)[]).map((way, index) => {
    const input = h("input", { type: "radio", name, value: way, checked: index === 0 });
    input.addEventListener("change", () => choose(way));
    const help = h("span", { class: "hint", id: newId("way-help") }, t.wayHelp[way]);
    input.setAttribute("aria-describedby", help.id);
    return h("label", { class: "choice" }, input, h("span", {}, h("b", {}, t.way[way]), help));
  });
  choose("file");
  const others = h("section", { class: "card" }, h("fieldset", { class: "ways" }, h("legend", {}, t.ways), choices), panel);
  return vault.listEntries().length ? h("details", { class: "others" }, h("summary", {}, t.others), others) : others;
}

type Keep = (profile: Profile, isNew: boolean) => void;

function fileForm(keep: Keep): HTMLElement {
  const t = texts.open;
  const file = h("input", { type: "file", accept: ".json,.toml,application/json" });
  return form(
    async () => {
      const chosen = file.files?.[0];
      if (!chosen) throw new ProfileError("no_file");
      keep(parseProfile(await chosen.text()), false);
    },
    {},
    field(t.file, file, t.fileHelp),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, t.fileOpen)),
  );
}

function recoveryForm(keep: Keep): HTMLElement {
  const t = texts.open;
  const account = h("input", { type: "text", required: true, spellcheck: "false", class: "code" });
  const words = h("textarea", { rows: 4, required: true, spellcheck: "false", class: "code" });
  return form(
    async () => {
      const accountId = parseAccountId(account.value);
      const profile = connect.profileOfRecovery(accountId, words.value);
      words.value = "";
      keep(profile, false);
    },
    {},
    field(t.accountId, account, t.accountIdHelp),
    field(t.recoveryKey, words, t.recoveryHelp),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, t.recoveryOpen)),
  );
}

function foundForm(keep: Keep): HTMLElement {
  const t = texts.open;
  const label = h("input", { type: "text", maxlength: 128, required: true });
  const token = h("input", { type: "password", autocomplete: "off" });
  return form(
    async () => keep(await connect.foundAccount(label.value.trim(), token.value || null), true),
    {},
    h("p", { class: "hint" }, t.foundLead),
    field(t.foundLabel, label),
    field(t.foundToken, token, t.foundTokenHelp),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, t.foundOpen)),
  );
}

function joinForm(keep: Keep): HTMLElement {
  const t = texts.open;
  const label = h("input", { type: "text", maxlength: 64, required: true });
  const account = h("input", { type: "text", required: true, spellcheck: "false", class: "code" });
  const made = h("div");
  const asked = form(
    async () => {
      const joining = await connect.makeJoinRequest(parseAccountId(account.value), label.value.trim());
      const request = h("textarea", { rows: 5, readonly: true, class: "code" }, joining.request);
      fill(
        made,
        field(t.joinRequest, request),
        h("p", {}, `${t.joinFingerprint}: `, h("strong", {}, joining.fingerprint)),
        h("p", { class: "hint" }, t.joinNext),
        h(
          "div",
          { class: "buttons" },
          button(
            t.joinOpen,
            () =>
              attempt(async () => {
                await connect.open(joining.profile);
                keep(joining.profile, true);
              }),
            { class: "primary" },
          ),
        ),
      );
    },
    {},
    h("p", { class: "hint" }, t.joinLead),
    field(t.accountId, account, t.accountIdHelp),
    field(t.joinLabel, label),
    h("div", { class: "buttons" }, h("button", { type: "submit" }, t.joinMake)),
  );
  return h("div", {}, asked, made);
}

/** Asks whether and how to keep keys that were just brought or made. */
function keepForm(profile: Profile, isNew: boolean, opened: Opened): HTMLElement {
  const t = texts.open;
  const min = vault.PASSPHRASE_CHARACTERS_MIN;
  const label = h("input", { type: "text", maxlength: 64, value: shorten(profile.accountId), autocomplete: "username" });
  const once = h("input", { type: "password", autocomplete: "new-password" });
  const again = h("input", { type: "password", autocomplete: "new-password" });
  const typed = h("div", {}, field(t.passphrase, once, t.passphraseHelp(min)), field(t.passphraseAgain, again));
  const named = field(t.keepName, label);
  const name = newId("keep");
  let way = "none";
  const choice = (value: string, text: string, isDisabled = false): HTMLElement => {
    const input = h("input", { type: "radio", name, value, checked: value === way, disabled: isDisabled });
    input.addEventListener("change", () => {
      way = value;
      named.hidden = way === "none";
      typed.hidden = way !== "passphrase";
    });
    return h("label", { class: "choice" }, input, " ", text);
  };
  named.hidden = typed.hidden = true;
  const canPasskey = vault.hasPasskeys();
  const work = async (): Promise<void> => {
    if (way === "passphrase") {
      if (once.value.length < min) throw new ProfileError("passphrase_short");
      if (once.value !== again.value) throw new ProfileError("passphrase_differs");
      await vault.keepUnderPassphrase(profile, once.value, label.value.trim());
      once.value = again.value = "";
    }
    if (way === "passkey") await vault.keepUnderPasskey(profile, label.value.trim());
    await opened(profile);
  };
  return form(
    work,
    { class: "card" },
    h("h2", { tabindex: "-1" }, t.keepTitle),
    isNew ? h("p", { class: "notice" }, t.newKeysWarning) : null,
    h("p", { class: "hint" }, t.keepLead),
    h(
      "fieldset",
      {},
      h("legend", { class: "visually-hidden" }, t.keepTitle),
      choice("none", t.keepNot),
      choice("passphrase", t.keepPassphrase),
      choice("passkey", t.keepPasskey, !canPasskey),
      canPasskey ? null : h("p", { class: "hint" }, t.keepPasskeyNone),
    ),
    named,
    typed,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, t.keepDo)),
  );
}
