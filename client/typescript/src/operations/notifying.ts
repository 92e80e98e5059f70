/**
 * Webhooks: an owner's requests about who is told what happens.
 *
 * Not here: the check of what is told, at the other end (`../webhooks.ts`).
 *
 * Source: SPEC.md §18.
 */

import type { Ending, Given, Schemas } from "../description.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import { randomUuid } from "../sealed/primitives.ts";
import { type Call, parseList } from "../session.ts";
import { Consolidating } from "./consolidating.ts";
import { segment } from "./reading.ts";

/** What a webhook may be told of. */
export const WEBHOOK_EVENTS: readonly string[] = [
  ...["written", "edited", "state_changed", "consolidated", "resealed", "erased", "expired"],
  "indexed",
]
  .map((name) => `memory.${name}`)
  .concat("episode.extracted", "key.granted", "key.revoked", "account.rebuilt");

/** What a webhook is told (everything), of which namespaces (all), and whether it is now. */
export type WebhookOptions = Given<Omit<Schemas["WebhookBody"], "relayer" | "url">> &
  Ending & {
    /** The one to change; without it, another one is made. */
    readonly id?: string;
  };

/** One webhook, and how telling it goes. */
export type Webhook = Schemas["WebhookAnswer"];

/** Webhooks, and all operations on memories and keys. */
export class Notifying extends Consolidating {
  /** Returns the account's webhooks, oldest first. */
  async webhooks(options: Ending = {}): Promise<readonly Webhook[]> {
    const call: Call = { method: "GET", path: "/v1/webhooks", ...options };
    return parseList((await this.session.call<"listWebhooks">(call)).webhooks, "webhooks");
  }

  /**
   * Makes a webhook, or changes the one with this `id`, which starts again where it stopped.
   *
   * A new one has a `secret`, which is shown nowhere else; `new_secret` replaces that of an old one.
   */
  async putWebhook(url: string, options: WebhookOptions = {}): Promise<Webhook> {
    const { signal, id, events = WEBHOOK_EVENTS, namespaces, ...more } = options;
    const body = {
      url,
      events,
      ...more,
      namespaces: namespaces?.map(normaliseNamespace) ?? null,
      // A lost answer would take the secret along: whoever repeats gets another one.
      new_secret: more.new_secret || id === undefined,
    };
    const path = `/v1/webhooks/${segment(id ?? randomUuid())}`;
    return this.change<"putWebhook">("PUT", path, body, { signal });
  }

  /** Removes a webhook; `removed` is false if it was not there. */
  async removeWebhook(id: string, options: Ending = {}): Promise<Schemas["WebhookRemovedAnswer"]> {
    const path = `/v1/webhooks/${segment(id)}`;
    const call: Call = { method: "DELETE", path, namesRelayer: true, ...options };
    return this.session.call<"removeWebhook">(call);
  }

  /** Has a webhook told that this is a test, and returns whether it was taken. */
  async tryWebhook(id: string, options: Ending = {}): Promise<Schemas["TrialAnswer"]> {
    return this.change<"tryWebhook">("POST", `/v1/webhooks/${segment(id)}/test`, {}, options);
  }
}
