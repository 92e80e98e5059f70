// Uses the console in a real Chromium as a person does, and prints what came of it as JSON.
//
//   node drive.mjs SCENE FOLDER
//
// SCENE is a JSON file of `views.py`: addresses, files, and what stands in the account. FOLDER has
// the packages. Pictures go to the scene's folder. Steps are found by role and name, as a screen
// reader finds them; the texts come from here, so that a changed word is noticed.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [sceneFile, packages] = process.argv.slice(2);
const require = createRequire(join(packages, "x.js"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const scene = JSON.parse(readFileSync(sceneFile, "utf8"));
const report = { requests: [], violations: [], console: [], steps: [], tasks: {} };
const AT_ONCE = 4; // searches of a key's namespaces, 16 each
const PASSPHRASE = "a passphrase of several words";

const browser = await chromium.launch({
  executablePath: scene.chromium,
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});

/** Opens a page whose every request, message and error is kept in the report. */
async function open(options = {}) {
  const { initial, ...given } = options;
  const context = await browser.newContext({
    viewport: { width: 1280, height: 860 },
    locale: "en-GB",
    timezoneId: "Europe/Lisbon",
    acceptDownloads: true,
    ...given,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000); // a loaded machine is slow
  page.on("console", (message) => {
    // Chromium says so of every answer that is no 2xx; what the page makes of it is looked at.
    const isWrong = ["error", "warning"].includes(message.type());
    if (isWrong && !message.text().startsWith("Failed to load resource")) {
      report.console.push(message.text());
    }
  });
  page.on("pageerror", (error) => report.console.push(String(error)));
  context.on("request", (request) =>
    report.requests.push({
      url: request.url(),
      method: request.method(),
      headers: request.headers(),
      body: request.postData() ?? "",
    }),
  );
  if (initial) await initial(page);
  await page.goto(scene.url);
  return page;
}

const byName = (page, role, name) => page.getByRole(role, { name, exact: true });
const press = (page, name) => byName(page, "button", name).click();
/** Goes to another view than that which is shown; a new view takes the focus once it is drawn. */
const goTo = async (page, name) => {
  await page.getByRole("navigation").getByRole("link", { name }).click();
  await page.waitForFunction(() => document.activeElement?.id === "content");
  await byName(page, "heading", name).waitFor();
};
const step = (name, value = true) => report.steps.push([name, value]);

async function look(page, name, picture = false) {
  const found = await page.evaluate(`${axe}; axe.run()`);
  for (const violation of found.violations) {
    const nodes = violation.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)}: ${node.failureSummary}`);
    report.violations.push({ view: name, rule: violation.id, nodes });
  }
  if (picture) await page.screenshot({ path: join(scene.folder, `${name}.png`) });
}

async function bringProfile(page, file) {
  await page.getByLabel("Profile file").last().setInputFiles(file);
  await press(page, "Open");
  await byName(page, "heading", "Keep the keys in this browser?").waitFor();
}

async function openProfile(page, file) {
  await bringProfile(page, file);
  await press(page, "Go on");
  await byName(page, "heading", "Search").waitFor();
}

async function ask(page, question) {
  await page.getByLabel("What do you want to know?").fill(question);
  await press(page, "Search");
  await page.getByText(", best first").first().waitFor();
}

/** Has recalls counted, recalls once, and sees in three places what that used. */
async function countRecalls(page) {
  await goTo(page, "Usage and export");
  await press(page, "Count recalls");
  await byName(page.getByRole("dialog"), "button", "Count recalls").click();
  await page.getByText("No memory was recalled since then.").waitFor();
  await goTo(page, "Search");
  await ask(page, scene.question);
  await byName(page, "link", scene.answer).click();
  await byName(page, "heading", "About it").waitFor();
  step("a memory's recalls", await page.locator("dt:text-is('Recalled') + dd").innerText());
  await look(page, "recalled", true);
  await goTo(page, "Usage and export");
  await page.getByText("were never recalled since then.").waitFor();
  await page.locator("ol.rows .row").first().waitFor();
  step("recalled most", await page.locator("ol.rows .row").allInnerTexts());
  await page.getByRole("button", { name: "Show the newest" }).click();
  await page.locator("ul.rows .row").first().waitFor();
  step("never recalled", await page.locator("ul.rows .row").count());
  await look(page, "usage-recalls", true);
  await byName(page, "link", "coder").click();
  await byName(page, "heading", "Memories").waitFor();
  await page.locator("a.row").first().waitFor();
  step("stored by an agent", await page.locator("a.row").count());
  await press(page, "Clear the filters");
  await goTo(page, "Usage and export");
  await press(page, "Stop counting");
  await byName(page.getByRole("dialog"), "button", "Stop counting").click();
  await page.getByText("Which memories were recalled is not counted.").waitFor();
}

/** Searches, and notes the reasons that are shown beside the numbers that the relayer gave. */
async function compareReasons(page) {
  await page.route("**/v1/recall", async (route) => {
    const response = await route.fetch();
    step("recalled", (await response.json()).results);
    await route.fulfill({ response });
  });
  await ask(page, scene.question);
  await page.unroute("**/v1/recall");
  for (const why of await page.locator("summary").all()) await why.click();
  step("sentence on relevance", await page.locator(".results > .hint").innerText());
  step("reasons", await page.locator(".hits > li").allInnerTexts());
}

const toast = (page, text) => page.locator(".toast", { hasText: text }).first().waitFor();

/** Keeps keys under a passphrase, locks, and opens them again; wrong words open nothing. */
async function keepAndLock() {
  const page = await open();
  await look(page, "open");
  await bringProfile(page, scene.profile);
  await look(page, "keep");
  await page.getByLabel("Yes, wrapped by a passphrase").check();
  await page.getByLabel("Name of these keys in this browser").fill("laptop");
  await page.getByLabel("Passphrase", { exact: true }).fill(PASSPHRASE);
  await page.getByLabel("Passphrase again").fill("another one, mistyped");
  await press(page, "Go on");
  await page.getByText("The two passphrases differ.").waitFor();
  await page.getByLabel("Passphrase again").fill(PASSPHRASE);
  await press(page, "Go on");
  await byName(page, "heading", "Search").waitFor();
  await goTo(page, "Memories");
  await page.getByText(scene.texts[0]).first().waitFor();
  await press(page, "Lock");
  await byName(page, "heading", "Open your memory").waitFor();
  await look(page, "locked", true);
  const left = await page.content();
  step("nothing readable is left when it is locked", !scene.texts.some((text) => left.includes(text)));
  const stored = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
  step("the browser stores", stored);
  await page.getByLabel("Passphrase", { exact: true }).fill("not the right passphrase");
  await byName(page, "button", "Open").first().click();
  await page.getByText("That passphrase does not open these keys.").waitFor();
  await look(page, "wrong-passphrase", true);
  await page.getByLabel("Passphrase", { exact: true }).fill(PASSPHRASE);
  await byName(page, "button", "Open").first().click();
  await byName(page, "heading", "Memories").waitFor();
  await page.reload();
  await byName(page, "heading", "Open your memory").waitFor();
  step("a page loaded anew is locked");
  await press(page, "Take out: laptop");
  await press(page, "Take out");
  await byName(page, "heading", "Keys kept in this browser").waitFor({ state: "detached" });
  step("kept under a passphrase, and taken out");
  await page.context().close();
}

/** Keeps keys under a passkey: a virtual authenticator stands in for a device's. */
async function keepUnderPasskey() {
  const page = await open({
    initial: async (fresh) => {
      const devtools = await fresh.context().newCDPSession(fresh);
      await devtools.send("WebAuthn.enable");
      await devtools.send("WebAuthn.addVirtualAuthenticator", {
        options: {
          protocol: "ctap2",
          ctap2Version: "ctap2_1",
          transport: "internal",
          hasResidentKey: true,
          hasUserVerification: true,
          hasPrf: true,
          isUserVerified: true,
          automaticPresenceSimulation: true,
        },
      });
    },
  });
  await bringProfile(page, scene.profile);
  await page.getByLabel("Yes, wrapped by a passkey").check();
  await press(page, "Go on");
  await byName(page, "heading", "Search").waitFor();
  const stored = await page.evaluate(() => JSON.stringify({ ...localStorage }));
  step("under a passkey, the browser stores", stored);
  await press(page, "Lock");
  await press(page, "Open with the passkey");
  await byName(page, "heading", "Search").waitFor();
  step("kept under a passkey");
  await page.context().close();
}

/** Leaves the page alone: it locks itself. */
async function leaveAlone() {
  const page = await open({ initial: (fresh) => fresh.clock.install() });
  await openProfile(page, scene.profile);
  await page.getByLabel("Lock by itself").selectOption("after 2 minutes");
  await page.clock.fastForward("03:00");
  await page.getByText("The console locked itself, because nobody used it.").waitFor();
  step("locked when nobody used it");
  await page.context().close();
}

async function useViews(page, suffix, isPictured) {
  await ask(page, scene.question);
  await page.getByText("Why this one").first().click();
  await page.getByText("Its place comes from its score of").first().waitFor();
  await look(page, `search${suffix}`, isPictured);
  for (const view of ["Memories", "Timeline", "Review", "Agents and keys", "Usage and export"]) {
    await goTo(page, view);
    await page.waitForTimeout(700);
    await look(page, `${view.split(" ")[0].toLowerCase()}${suffix}`, isPictured);
  }
  await goTo(page, "Memories");
  await page.locator("a.row", { hasText: scene.edited }).first().click();
  await byName(page, "heading", "History").waitFor();
  await look(page, `memory${suffix}`, isPictured);
}

/** Finds, reads, corrects, pins, lets expire and forgets one memory. */
async function changeOne(page) {
  await ask(page, scene.question);
  await byName(page, "link", scene.answer).click();
  await byName(page, "heading", "About it").waitFor();
  await press(page, "Correct");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Text").fill(scene.corrected);
  await dialog.getByLabel("Tags").fill("drinks, anna");
  await look(page, "correct");
  await byName(dialog, "button", "Save").click();
  await toast(page, "was signed by the relayer and verified here");
  await byName(page, "heading", "Revision 2").or(page.getByText("Revision 2")).first().waitFor();
  step("corrected", await page.locator("blockquote.memory-text").innerText());
  await press(page, "Pin");
  await byName(page, "button", "Unpin").waitFor();
  step("pinned");
  await press(page, "Set expiry");
  await dialog.getByLabel("Expires at").fill("2031-05-04T10:00");
  await byName(dialog, "button", "Save").click();
  await page.getByText("4 May 2031").first().waitFor();
  step("expires");
  await press(page, "Verify the receipts");
  await page.getByText("of the account hold together").waitFor();
  step("receipts of it", await page.locator("tbody tr").count());
  await look(page, "receipts");
  await goTo(page, "Memories");
  await page.getByLabel("Find in these texts").fill(scene.forgotten.slice(0, 20));
  await page.getByText("1 of ", { exact: false }).first().waitFor();
  await page.locator("a.row").first().focus();
  await page.keyboard.press("Enter");
  await press(page, "Forget");
  await byName(page.getByRole("dialog"), "button", "Forget").click();
  await toast(page, "The memory is erased.");
  await byName(page, "heading", "Memories").waitFor();
  step("forgotten", await page.locator("a.row", { hasText: scene.forgotten }).count());
}

async function decide(page) {
  await goTo(page, "Review");
  await byName(page, "button", "Keep the new one").first().waitFor();
  await press(page, "Keep the new one");
  await toast(page, "Decided.");
  await byName(page, "button", "Reject it").first().click();
  await page.getByText("Nothing waits for a decision.").waitFor();
  step("decided");
}

async function followTime(page) {
  await goTo(page, "Timeline");
  await page.locator("a.row").first().waitFor();
  await page.getByLabel("By", { exact: true }).selectOption("month");
  await page.getByLabel("Tag").selectOption("infra");
  const rows = await page.locator("a.row").allInnerTexts();
  step("timeline of a tag", rows.map((row) => row.split("\n")[0]));
  await page.getByLabel("Tag").selectOption("any");
  await page.getByLabel("Stored by").selectOption("coder");
  step("timeline of an agent", await page.locator("a.row").count());
}

async function rule(page) {
  await goTo(page, "Agents and keys");
  await page.getByLabel("Request").fill(scene.joinRequest);
  await press(page, "Look at the request");
  await page.getByText(scene.fingerprint).waitFor();
  await page.getByLabel("Namespaces").fill("team");
  await press(page, "Admit");
  await toast(page, "phone is admitted.");
  await byName(page, "button", "Revoke: phone").click();
  await byName(page.getByRole("dialog"), "button", "Revoke").click();
  await toast(page, "phone is revoked.");
  step("keys", (await page.locator("table.keys tbody th").allInnerTexts()).length);
}

/** Gives an agent another key, and everybody new ones; both seal memories anew. */
async function rotate(page) {
  await byName(page, "button", "Replace: coder").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Request").fill(scene.replacing.request);
  await dialog.getByText(scene.replacing.fingerprint).waitFor();
  await look(page, "replace");
  await byName(dialog, "button", "Replace").click();
  await toast(page, "coder has a new key.");
  await page.getByText("stay under older keys").waitFor();
  await byName(page, "button", "Revoke: coder").waitFor();
  step("may be left out", await page.locator("fieldset label.check").allInnerTexts());
  await page.getByLabel("Seal anew").selectOption("all");
  await press(page, "Give new keys");
  await page.getByText("Nobody is left out.").waitFor();
  await byName(dialog, "button", "Give new keys").click();
  await toast(page, "New keys count from now on.");
  await page.getByText("No older key opens anything").waitFor();
  await look(page, "rotation", true);
  step("rotated");
}

/** Makes a recovery key and prints it; returns its lines, which the page has no longer. */
async function makeRecoveryKey(page) {
  await page.evaluate(() => (window.print = () => (window.printed = document.querySelector("dialog").innerText)));
  await press(page, "Make a recovery key");
  const dialog = page.getByRole("dialog");
  await byName(dialog, "button", "Print").waitFor();
  const lines = await dialog.locator("ol li").allInnerTexts();
  await look(page, "recovery", true);
  await page.emulateMedia({ media: "print" });
  const onPaper = [await dialog.getByText(lines[0]).isVisible(), await page.getByRole("link").first().isVisible()];
  step("on paper are the sheet and nothing else", onPaper[0] && !onPaper[1]);
  await page.emulateMedia({ media: "screen" });
  await byName(dialog, "button", "Print").click();
  step("printed", await page.evaluate(() => window.printed));
  await page.evaluate(() => (window.printed = null));
  await byName(dialog, "button", "It is on paper").click();
  await byName(page, "button", "Revoke: recovery").waitFor();
  const left = await page.content();
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
  step("nothing of the recovery key is left", !lines.some((line) => (left + kept).includes(line)));
  step("recovery key", lines);
  return lines.join("\n");
}

async function count(page) {
  await goTo(page, "Usage and export");
  await press(page, "Verify the receipts");
  await byName(page, "columnheader", "Week from").waitFor();
  step("receipts", await page.getByText("of the account are signed by the relayer and hold together.").innerText());
  await page.getByText(/^The newest \d+ receipts$/).click();
  step("receipts by number", await page.locator("table.log tbody tr").allInnerTexts());
  await look(page, "usage-receipts", true);
  const waiting = page.waitForEvent("download");
  await press(page, "Write the file");
  const file = await waiting;
  step("exported", readFileSync(await file.path(), "utf8"));
  await page.getByLabel("Format").selectOption("Sealed: an archive of the account");
  const sealing = page.waitForEvent("download");
  await press(page, "Write the file");
  await (await sealing).saveAs(join(scene.folder, "memrelay.archive"));
  await toast(page, "and earlier revisions written, all sealed.");
  step("errors of the archive", await page.locator(".alerts").textContent());
}

/** Goes by the keyboard alone: to the list, down its rows, into one, and back. */
async function useKeyboard(page) {
  await goTo(page, "Memories");
  await page.getByLabel("Find in these texts").fill("");
  await page.locator("a.row").first().waitFor();
  await page.locator("a.row").first().focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("End");
  const place = await page.evaluate(() => {
    const row = document.activeElement?.closest("li");
    return [row?.getAttribute("aria-posinset"), row?.getAttribute("aria-setsize")];
  });
  step("the End key leads to the last row", place[0] === place[1] && place[0] !== null);
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await byName(page, "heading", "About it").waitFor();
  step("opened by the keyboard");
}

async function joinAndFound(recoveryKey) {
  const page = await open();
  await page.getByLabel("New account").check();
  await page.getByLabel("Name of the account").fill("made in the browser");
  await press(page, "Make the account");
  await page.getByText("These keys are in this browser alone.").waitFor();
  await press(page, "Go on");
  await goTo(page, "Memories");
  await byName(page, "heading", "There are no memories here yet").waitFor();
  await look(page, "empty", true);
  await press(page, "Add a memory");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Text").fill("The first memory was typed into the console.");
  await dialog.getByLabel("Tags").fill("first");
  await look(page, "add", true);
  await byName(dialog, "button", "Store").click();
  await toast(page, "was signed by the relayer and verified here");
  await byName(page, "heading", "About it").waitFor();
  step("founded", await page.locator("blockquote.memory-text").innerText());
  await goTo(page, "Memories");
  step("stored", await page.locator("a.row").allInnerTexts());
  await press(page, "Lock");
  await page.getByLabel("Join an account").check();
  await page.getByLabel("Account", { exact: true }).fill(scene.account);
  await page.getByLabel("Name of the key").fill("tablet");
  await press(page, "Make the request");
  const request = await page.getByLabel("Request", { exact: true }).inputValue();
  await press(page, "Open");
  await page.getByText("The relayer refuses this key").waitFor();
  step("request", request);
  await page.getByLabel("Recovery key").first().check();
  await page.getByLabel("Account", { exact: true }).fill(scene.account);
  await page.getByLabel("Recovery key").last().fill(recoveryKey);
  await press(page, "Open");
  await press(page, "Go on");
  await byName(page, "heading", "Memories").waitFor();
  step("opened by a recovery key");
  await page.context().close();
}

/** Searches more namespaces than a request may name: all of them, and what a refusal leaves out. */
async function searchMany({ profile, question, answer, last, total }) {
  const page = await open();
  await openProfile(page, profile);
  let [running, most, requests] = [0, 0, 0];
  let release = () => {};
  let isRefused = false;
  const refusal = { code: "auth.not_allowed", message: "This key may not read there." };
  await page.route("**/v1/recall", async (route) => {
    const isLast = route.request().postDataJSON().namespaces.includes(last);
    requests += 1;
    most = Math.max(most, (running += 1));
    if (isLast) await new Promise((go) => (release = go));
    // As many as may run at once have to be there before one is answered.
    else while (most < AT_ONCE) await page.waitForTimeout(10);
    const answer = isLast && isRefused ? { status: 403, json: refusal } : { response: await route.fetch() };
    running -= 1;
    await route.fulfill(answer);
  });
  const field = page.getByLabel("What do you want to know?");
  await field.fill(question);
  await field.press("Enter");
  await page.getByText(`${total - (total % 16)} of ${total} namespaces searched …`).waitFor();
  release();
  await byName(page, "link", answer).waitFor();
  step("namespaces at once", { most, requests });
  isRefused = true;
  await press(page, "Search");
  await page.getByText(`${total - (total % 16)} of ${total} namespaces searched …`).waitFor();
  release();
  await page.locator(".notice").first().waitFor();
  step("searched in part", await page.locator(".notice").first().innerText());
  await look(page, "search-partly", true);
  await page.unroute("**/v1/recall");
  await press(page, "Search");
  await byName(page, "link", answer).click();
  await byName(page, "heading", "About it").waitFor();
  await press(page, "Lock");
  await bringProfile(page, profile);
  await press(page, "Go on");
  await byName(page, "heading", "About it").waitFor();
  step("opened by its address", await page.locator("blockquote.memory-text").innerText());
  await page.context().close();
}

/** Scrolls, filters and searches; returns what was in the document, and the longest task in ms. */
async function measure(profile, question) {
  const page = await open({
    initial: (fresh) =>
      fresh.addInitScript(() => {
        window.longest = window.rowsMost = 0;
        const count = () => (window.rowsMost = Math.max(window.rowsMost, document.querySelectorAll("a.row").length));
        new MutationObserver(count).observe(document, { childList: true, subtree: true });
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
        }).observe({ type: "longtask", buffered: true });
      }),
  });
  await openProfile(page, profile);
  await page.evaluate(() => (window.longest = 0));
  await goTo(page, "Memories");
  await page.waitForFunction(() => /^[\d,]+ memories$/.test(document.querySelector(".count")?.textContent ?? ""), null, { timeout: 120_000 });
  const rows = await page.locator(".count").innerText();
  await page.locator(".virtual").hover();
  for (let turn = 0; turn < 40; turn += 1) {
    await page.mouse.wheel(0, 4000);
    await page.waitForTimeout(30);
  }
  await page.locator("a.row").first().focus();
  await page.keyboard.press("End");
  const last = await page.evaluate(() => document.activeElement.closest("li").getAttribute("aria-posinset"));
  for (const key of ["Home", "PageDown"]) await page.keyboard.press(key);
  await page.getByLabel("Find in these texts").pressSequentially("number 7", { delay: 40 });
  await page.waitForTimeout(300);
  await goTo(page, "Timeline");
  await page.getByLabel("By", { exact: true }).selectOption("day");
  await page.waitForTimeout(300);
  await goTo(page, "Search");
  await ask(page, question);
  await goTo(page, "Usage and export");
  await byName(page, "columnheader", "Namespace").waitFor();
  const { longest, rowsMost } = await page.evaluate(() => ({ longest: window.longest, rowsMost: window.rowsMost }));
  await page.context().close();
  return { rows, last: Number(last), rowsMost, longest };
}

if (scene.measured) {
  for (const [name, profile] of Object.entries(scene.measured)) {
    report.tasks[name] = await measure(profile, "number 7");
  }
} else {
  await keepAndLock();
  await keepUnderPasskey();
  await leaveAlone();
  for (const [suffix, options] of Object.entries(scene.looks)) {
    const page = await open(options);
    await look(page, `open${suffix}`, true);
    await openProfile(page, scene.profile);
    await useViews(page, suffix, true);
    await page.context().close();
  }
  const page = await open();
  await openProfile(page, scene.profile);
  await countRecalls(page);
  await goTo(page, "Search");
  await compareReasons(page);
  await changeOne(page);
  await followTime(page);
  await decide(page);
  await rule(page);
  await rotate(page);
  const recoveryKey = await makeRecoveryKey(page);
  await count(page);
  await useKeyboard(page);
  await page.context().close();
  await joinAndFound(recoveryKey);
  await searchMany(scene.many);
}
await browser.close();
process.stdout.write(JSON.stringify(report));
