/**
 * A host for the plugin alone: calls its hooks and tools as a long-lived OpenClaw would.
 *
 * `node host.mjs PLUGIN CONFIG` reads one JSON call a line and prints one JSON answer a line, with
 * what the plugin has logged since the last one. The calls of a list are made at once, or `after_ms`.
 */

import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const [plugin, config] = process.argv.slice(2);
const { default: entry } = await import(pathToFileURL(plugin).href);
const hooks = {};
const tools = {};
let logged = [];
const log = (level) => (text) => logged.push(`${level}: ${text}`);

entry.register({
  pluginConfig: JSON.parse(config),
  logger: { info: log("info"), warn: log("warn"), error: log("error") },
  on: (name, handler) => (hooks[name] = handler),
  registerTool: (factory, { name }) => (tools[name] = factory),
});

async function made({ hook, tool, event, ctx, after_ms }) {
  if (after_ms) await setTimeout(after_ms);
  return hook ? hooks[hook](event, ctx) : tools[tool](ctx).execute("1", event);
}

for await (const line of createInterface({ input: process.stdin })) {
  const calls = JSON.parse(line);
  const result = await (Array.isArray(calls) ? Promise.all(calls.map(made)) : made(calls));
  process.stdout.write(`${JSON.stringify({ result: result ?? null, logged })}\n`);
  logged = [];
}
