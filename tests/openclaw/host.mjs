/**
 * A host for the plugin alone: calls its hooks and tools as a long-lived OpenClaw would.
 *
 * `node host.mjs PLUGIN CONFIG` reads one JSON call a line and prints one JSON answer a line, with
 * what the plugin has logged since the last one.
 */

import { createInterface } from "node:readline";
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

for await (const line of createInterface({ input: process.stdin })) {
  const { hook, tool, event, ctx } = JSON.parse(line);
  const result = hook ? await hooks[hook](event, ctx) : await tools[tool](ctx).execute("1", event);
  process.stdout.write(`${JSON.stringify({ result: result ?? null, logged })}\n`);
  logged = [];
}
