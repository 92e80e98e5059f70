/**
 * memrelay for OpenClaw: hands hooks and tool calls to `memrelay gateway`, which holds the keys.
 *
 * It does not own what is remembered or recalled (the gateway), nor the connection (`link.js`).
 *
 * - A hook fails open: without the gateway, a turn goes on as if this plugin were not there.
 * - Of a conversation, only what the user and the assistant said is handed over.
 */

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

import { Link } from "./link.js";

const TOOLS = read("tools.json");
const TOOL_MS = 12_000; // a little more than the gateway gives itself
const LATE_TURNS_MAX = 20; // kept in memory only; on disk they would lie readable
const GOAL_CHARS_MAX = 8 * 1024; // the gateway cleans it and keeps its beginning
const CONVERSATION_CHARS_MAX = 512 * 1024; // of three bytes at most, in a line of 2 MiB at most
const MESSAGE_CHARS_MAX = 128 * 1024; // more than the gateway reads of one
const MESSAGE_CHARS_EXTRA = 40; // what stands around a message in JSON
const ORIGIN_CHARS_MAX = 40;
const CONTROLS = /[\u0000-\u0008\u000B\u000C\u000E-\u001F]/g; // six bytes each in JSON

export default {
  id: "memrelay",
  name: "memrelay",
  description: "Long-term memory that nobody else can read",

  /** @param {object} api OpenClaw's plugin API */
  register(api) {
    // OpenClaw itself reads `dreaming`: whether to load memory-core beside this plugin.
    const { endpoint = defaultEndpoint(), dreaming: _, ...settings } = api.pluginConfig ?? {};
    const hello = { plugin: read("package.json").version, settings };
    const link = new Link({ endpoint, hello, logger: api.logger });
    const late = []; // turns that ended while the gateway was away
    const lose = (turns) => {
      if (!turns.length) return;
      api.logger.warn(`memrelay: turns that had to wait are lost: ${turns.length}`);
    };
    const handOver = (method, pick) => async (event, ctx) => {
      const answer = await link.call(method, { event: pick(event), ctx: contextOf(ctx) });
      if (answer !== undefined) handOverLate();
      return answer ?? undefined;
    };
    const handOverTurn = async (turn) => {
      const taken = (await link.call("agent_end", turn)) !== undefined;
      if (!taken) late.push(turn);
      lose(late.splice(0, late.length - LATE_TURNS_MAX));
      return taken;
    };
    const handOverLate = async () => {
      while (late.length && (await handOverTurn(late.shift())));
    };

    api.on("before_prompt_build", handOver("before_prompt_build", promptOf));
    api.on("agent_end", async (event, ctx) => {
      const ended = { ...turnOf(event), endedAt: Date.now() }; // it may be handed over late
      if (await handOverTurn({ event: ended, ctx: contextOf(ctx) })) handOverLate();
    });
    api.on("session_start", handOver("session_start", () => ({})));
    for (const [name, pick] of [["llm_input", askedOf], ["llm_output", answeredOf]]) {
      const forward = handOver(name, pick);
      api.on(name, (event, ctx) => (link.welcome.debounce ? forward(event, ctx) : undefined));
    }
    api.on("gateway_stop", async () => {
      link.close();
      await new Promise(setImmediate); // the turns under way have failed by then, and wait, too
      lose(late.splice(0));
    });
    for (const tool of TOOLS) {
      // A factory, so that each call knows the agent and the session it belongs to.
      api.registerTool((ctx) => toolFor(tool, contextOf(ctx), link), { name: tool.name });
    }
  },
};

function read(name) {
  return JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
}

function defaultEndpoint() {
  const base = process.env.XDG_CONFIG_HOME || join(homedir(), ".config");
  return join(base, "memrelay", "gateway.json");
}

function contextOf({ agentId, sessionKey, sessionId, runId, trigger, inputProvenance, goal } = {}) {
  const origin = originOf(inputProvenance);
  const about = typeof goal === "string" ? printable(goal.slice(0, GOAL_CHARS_MAX)) : undefined;
  return { agentId, sessionKey, sessionId, runId, trigger, inputProvenance: origin, goal: about };
}

/** Where an input came from: JSON leaves it out where OpenClaw does not tell. */
function originOf(provenance) {
  const kind = provenance?.kind;
  return typeof kind === "string" ? { kind: kind.slice(0, ORIGIN_CHARS_MAX) } : undefined;
}

function promptOf({ prompt, currentUserMessage }) {
  // `prompt` may repeat the history; what the user said now makes the better query.
  const text = String(currentUserMessage ?? prompt ?? "");
  return { prompt: printable(text.slice(0, CONVERSATION_CHARS_MAX)) };
}

function turnOf({ success, messages }) {
  const spoken = [];
  let chars = 0;
  for (const message of (messages ?? []).toReversed()) {
    const content = textOf(message);
    if (!content) continue;
    chars += content.length + MESSAGE_CHARS_EXTRA;
    if (chars > CONVERSATION_CHARS_MAX) break;
    spoken.push({ role: message.role, content, provenance: originOf(message.provenance) });
  }
  return { success, messages: spoken.reverse() };
}

function textOf(message) {
  const { role, content } = Object(message);
  if (role !== "user" && role !== "assistant") return "";
  const blocks = Array.isArray(content) ? content : [{ type: "text", text: content }];
  const texts = blocks
    .filter((block) => block?.type === "text" && typeof block.text === "string")
    .map(({ text }) => text);
  return printable(texts.join("\n").slice(0, MESSAGE_CHARS_MAX));
}

function printable(text) {
  return text.replace(CONTROLS, " ").toWellFormed();
}

function askedOf({ prompt }) {
  return { prompt: printable(String(prompt ?? "").slice(-CONVERSATION_CHARS_MAX)) };
}

function answeredOf({ assistantTexts }) {
  const texts = Array.isArray(assistantTexts) ? assistantTexts : [];
  const messages = texts.map((content) => ({ role: "assistant", content }));
  return { assistantTexts: turnOf({ messages }).messages.map(({ content }) => content) };
}

function toolFor(tool, ctx, link) {
  return {
    ...tool,
    label: tool.name,
    async execute(_id, args) {
      const answer = await link.call("call_tool", { name: tool.name, arguments: args ?? {}, ctx }, TOOL_MS);
      const { text, details } = answer ?? {
        text: "The memory is out of reach now. Go on without it, and say so if it matters.",
        details: { error: "unavailable" },
      };
      return { content: [{ type: "text", text }], details };
    },
  };
}
