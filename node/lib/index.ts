// Gristmill in JavaScript: functions as jobs, in SQLite or PostgreSQL, or on a server.

export { App, type AppOptions, type BatchOptions, type Handler, type ScheduleRule, type WorkOptions } from './app.js';
export {
  Fail, GristmillError, InvalidValue, JobFailed, NotFound, ResultTimeout, Retry, SchemaRefused, SendFailed, type Span, StoreError,
  SubmitFailed, WorkerError,
} from './errors.js';
export { FlowError, StepFailed, TimeoutError } from './flow/engine.js';
export type { Flow, FlowBody, MapStepOptions, StepArguments, StepOptions, Winner } from './flow/flow.js';
export { FlowJob, type FlowOptions } from './flow/job.js';
export { type ForkOptions, Handle, Handles, type WaitOptions } from './handle.js';
export type { MapOptions } from './map.js';
export { Job, type JobOptions, type Stored, type SubmitArguments } from './job.js';
export type {
  Conditions, Control, EventReceipt, FlowCounts, FlowEvent, FlowRow, FlowStep, ForkedFlow, JobDetails, JobEvent, JobFailure, JobRow,
  KindOf, Limit, Schedule, Scope, Selected,
} from './operations.js';
export type { CommonOptions, OnDuplicate, SubmitOneOptions, SubmitOptions } from './options.js';
export type { InputOf, OutputOf, SchemaIssue, SchemaResult, StandardSchema } from './schema.js';
export type { SqliteTransaction } from './sqlite.js';
export type { SqlTransaction } from './transaction.js';
export type { BigInts } from './values/encode.js';
export type { BatchHandler } from './work/batcher.js';
export type { JobContext, Outcome, Progress, StepPlace } from './work/context.js';
export type { ModuleOptions } from './work/pool.js';
export type { Summary, Worker } from './work/worker.js';
