/**
 * memrelay for Node, Deno, Bun, browsers and workers: long-term memory that nobody else can read.
 *
 * Names here are stable; what a file beside this one exports and this one does not is not.
 */

export { Client, type ClientOptions, newProfile } from "./client.ts";
export * from "./errors.ts";
export type { Ending, Schemas } from "./description.ts";
export type { Aliases, Custody, Profile } from "./settings.ts";
export {
  MemoryTrustStore,
  pinTrust,
  readTrustState,
  type TrustState,
  type TrustStore,
} from "./trust.ts";

export type {
  AskOptions,
  CountsOptions,
  InNamespace,
  RecallOptions,
} from "./operations/reading.ts";
export { MIN_RELEVANCE } from "./operations/reading.ts";
export type { EpisodeOptions, ListOptions, ReviewOptions } from "./operations/listing.ts";
export type {
  AnalyzeOptions,
  Draft,
  ManyOptions,
  ManyRemembered,
  RememberOptions,
} from "./operations/writing.ts";
export type { EditOptions, StateChange } from "./operations/correcting.ts";
export type { ForgetFilters, ForgetOptions, Forgotten } from "./operations/forgetting.ts";
export type { FollowOptions, MemoryEvent } from "./operations/following.ts";
export type { AddedKey, FoundingOptions, KeyWish } from "./operations/keyholders.ts";
export type { Consolidation, ConsolidationsOptions } from "./operations/consolidating.ts";
export { type Webhook, WEBHOOK_EVENTS, type WebhookOptions } from "./operations/notifying.ts";
export type {
  ResealChoice,
  RotateOptions,
  Rotated,
  RotationProgress,
  SealingOptions,
} from "./operations/rotating.ts";

export {
  finishJoining,
  type Joined,
  type Joining,
  type JoinOptions,
  requestToJoin,
} from "./joining.ts";
export { exportArchive, type ExportOptions, type ExportResult } from "./archives/exporting.ts";
export {
  type Archive,
  type ArchiveSource,
  importArchive,
  type ImportOptions,
  type ImportTally,
  openArchive,
} from "./archives/importing.ts";
export { fromBase64, fromHex, toBase64, toBase64Url, toHex } from "./bytes.ts";
export { blobId, openEnvelope, readEnvelopeHeader } from "./sealed/envelope.ts";
export type { Grant, Role, ScopeEntry } from "./sealed/grants.ts";
export {
  type JoinRequest,
  makeFingerprint,
  readJoinRequests,
  writeJoinRequest,
} from "./sealed/joinRequest.ts";
export { accountBytes, accountIdOf, accountText, Identity, publicKeyBytes } from "./sealed/keys.ts";
export { Keyring, Ledger, type Revocation } from "./sealed/ledger.ts";
export { normaliseNamespace } from "./sealed/names.ts";
export {
  type Checkpoint,
  followReceipts,
  History,
  readCheckpoint,
  readReceipt,
  type Receipt,
} from "./sealed/receipts.ts";
export { randomUuid } from "./sealed/primitives.ts";
export { recoverIdentity, recoveryLines } from "./sealed/recovery.ts";
export { readStatement, type Statement } from "./sealed/statement.ts";
export { signRequest } from "./signing.ts";
export { verifyWebhook, type WebhookEvent, type WebhookHeaders } from "./webhooks.ts";
