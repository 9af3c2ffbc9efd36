/// <reference types="node" />
import type { EventEmitter } from 'node:events'
import type { Redis, RedisOptions } from 'ioredis'

/** A URL (fila://127.0.0.1:5555, filas:// with TLS), options of ioredis, or a client of it, which is duplicated. */
export type Connection = string | RedisOptions | Redis

/** The options of FILA.QUEUE CREATE. Times are milliseconds. */
export interface QueueSettings {
  visibility?: number
  maxattempts?: number
  backoff?: number
  maxbackoff?: number
  backoffjitter?: number
  ttl?: number
  maxdepth?: number
  keymaxdepth?: number
  dedupwindow?: number
  resultttl?: number
  ordered?: boolean
  signals?: boolean
  luatimeout?: number
  luamemory?: number
  breakererrors?: number
  batch?: number
  batchwait?: number
  keepdone?: number
  dlq?: string
  nodlq?: boolean
}

/** The options of FILA.ENQUEUE. Times are milliseconds. */
export interface JobOptions {
  /** The fairness key: the tenant. */
  key?: string
  weight?: number
  cost?: number
  throttle?: string | string[]
  budget?: string | string[]
  charge?: number
  headers?: Record<string, string | Buffer | undefined>
  /** 0 to 9, 9 is first. */
  priority?: number
  delay?: number
  at?: number | Date
  ttl?: number
  dedup?: string
  unique?: string
  /** Of messages with the same unique id the last one wins, while the first has not begun. With delay the time starts again, up to maxdelay. */
  replace?: boolean
  maxdelay?: number
  /** 'LEASE': the unique id is free once the message is being handled. */
  until?: 'LEASE'
  /** Of BullMQ: unique; with replace and extend (the same here) the last one wins; keepLastIfActive: also while one is handled. */
  deduplication?: { id: string, ttl?: number, replace?: boolean, extend?: boolean, keepLastIfActive?: boolean, maxDelay?: number }
  /** How often the message is tried, in place of the queue's. maxattempts is the same, 0 without limit. */
  attempts?: number
  maxattempts?: number
  backoff?: number | { type?: 'exponential' | 'fixed', delay: number }
  maxbackoff?: number
  /** The group that waits for this message. */
  group?: string
}

/** The options of FILA.GROUP OPEN. */
export interface GroupOptions extends Omit<JobOptions, 'dedup' | 'unique' | 'replace' | 'maxdelay' | 'until' | 'deduplication'> {
  /** DONE: dead members keep the group waiting. ENDED is the default of Group, DONE that of a flow. */
  when?: 'DONE' | 'ENDED'
  /** After so many milliseconds it is cancelled. */
  expire?: number
}

export interface QueueOptions {
  connection?: Connection
  /** Those with which a queue is created that does not exist. */
  settings?: QueueSettings
  /** The most connections that wait for results. The default is 16. */
  resultConnections?: number
}

/** A queue. It is created when it is missing. It has connections of its own. */
export declare class Queue<Data = any, Value = any> {
  constructor(name: string, options?: QueueOptions)
  readonly name: string
  /** Creates the queue unless it exists. */
  create(): Promise<void>
  /** Stores a message with data as JSON and its name as the header name. */
  add(name: string, data: Data, options?: JobOptions): Promise<AddedJob<Data, Value>>
  /** Stores a message with a payload as it is, and returns its id. */
  enqueue(payload: string | Uint8Array, options?: JobOptions): Promise<string>
  /** Waits for what becomes of a message, without a timeout until it has ended; undefined if it is not known. */
  result(id: string, options?: { timeout?: number, signal?: AbortSignal }): Promise<Result<Value> | undefined>
  /** Closes the connections. */
  close(): Promise<void>
}

/** A message that Queue.add has stored. */
export declare class AddedJob<Data = any, Value = any> {
  readonly id: string
  readonly name: string
  readonly data: Data
  /** Resolves to what the handler returned, or is rejected with its error once the message is dead. */
  waitUntilFinished(timeout?: number): Promise<Value>
}

/** What has become of a message. */
export declare class Result<Value = any> {
  readonly status: 'pending' | 'done' | 'dead'
  /** The RESULT of the ack; empty, or null, if the handler returned nothing. */
  readonly value: Buffer | null
  /** Of a dead message: its last error. */
  readonly error: string | null
  /** Of a pending message: what its handler has said last. */
  readonly progress: string | null
  /** The value, as the handler has returned it. */
  readonly returnvalue: Value
}

/** The message of a flow that has children. Its id is known once it is finished. */
export declare class FlowJob<Data = any, Value = any> extends AddedJob<Data, Value> {
  readonly group: string
}

/** The reply of FILA.GROUP GET. */
export interface GroupState {
  state: 'open' | 'sealed' | 'done' | 'cancelled'
  members: number
  pending: number
  done: number
  dead: number
  cancelled: number
  /** The id of the message that was enqueued. */
  message: string | null
  error: string | null
  opened_at: number
  sealed_at: number | null
  ended_at: number | null
}

/** A group of messages: when all of them have ended, its message is enqueued. Messages join with the option group. */
export declare class Group {
  constructor(name: string, options?: Pick<QueueOptions, 'connection' | 'settings'>)
  readonly name: string
  /** Opens the group, with the message that is enqueued at its end: false if there is a group of the name, which stays as it is. */
  open(queueName: string, name: string, data: any, options?: GroupOptions): Promise<boolean>
  /** Has the group take no more members, and returns how many are pending. */
  seal(): Promise<number>
  /** Cancels the group, its message and the members that are not being handled: false if it has ended. */
  cancel(): Promise<boolean>
  get(): Promise<GroupState | undefined>
  /** Waits until the group is done or cancelled, or for a number of milliseconds. */
  wait(timeout?: number): Promise<GroupState | undefined>
  close(): Promise<void>
}

export interface Flow {
  name: string
  queueName: string
  data?: any
  /** Those of GroupOptions for a parent. */
  opts?: JobOptions & GroupOptions
  children?: Flow[]
}

export interface FlowNode {
  job: AddedJob
  queueName: string
  children?: FlowNode[]
}

/** Adds trees of messages: a parent is enqueued when its children are done. Queues are created when they are missing. */
export declare class FlowProducer {
  constructor(options?: QueueOptions)
  /** Adds a flow in one write. */
  add(flow: Flow): Promise<FlowNode>
  close(): Promise<void>
}

/** A message that is leased. */
export declare class Job<Data = any> {
  readonly id: string
  /** The receipt of the lease. */
  readonly token: string
  /** The name with which it was added, or empty. */
  readonly name: string
  /** The value that was added. Reading it throws a SyntaxError if the payload is not JSON. */
  readonly data: Data
  readonly payload: Buffer
  readonly headers: Record<string, string>
  /** The fairness key. */
  readonly key: string
  /** 1 plus the failures so far. */
  readonly attempt: number
  /** The failures so far. */
  readonly attemptsMade: number
  readonly deliveries: number
  /** When it was enqueued, in Unix milliseconds. */
  readonly timestamp: number
  /** The end of the lease when it was leased, in Unix milliseconds. */
  readonly leaseUntil: number
  readonly queueName: string
  /** Is aborted when the lease is over too early, such as by FILA.CANCEL. */
  readonly signal: AbortSignal
  /** Says how far the work is, as text or JSON of at most 1 KiB, and extends the lease. */
  updateProgress(progress: any): Promise<void>
  /** The messages of the batch whose first one this is: this one alone without batches. */
  getBatch(): Job<Data>[]
  /** Has this message of a batch fail, whatever becomes of the others. */
  setAsFailed(error: unknown): void
}

export type Processor<Data = any, Value = any> = (job: Job<Data>, token: string, signal: AbortSignal) => Value | Promise<Value>

export interface WorkerOptions {
  connection?: Connection
  /** How many messages are handled at a time. The default is 1. */
  concurrency?: number
  /** The time of a lease in milliseconds, which is extended at a third of it. The default is 30000. */
  lockDuration?: number
  /** false: the caller calls run. */
  autorun?: boolean
  /** Is shown to operators. The default is the host and the process. */
  name?: string
  /** With settings the worker creates a queue that does not exist. Without, it waits for it. */
  settings?: QueueSettings
  /** The processor gets up to size messages of one key: the first one, whose getBatch has all. Concurrency counts batches. */
  batch?: { size: number }
  /** For how many milliseconds a lease waits, and so about how long close may take. The default is 1000. */
  blockFor?: number
}

export interface WorkerEvents<Data = any, Value = any> {
  completed: [job: Job<Data>, value: Value]
  failed: [job: Job<Data>, error: unknown]
  /** A handler has called updateProgress. */
  progress: [job: Job<Data>, progress: any]
  /** The lease of a message is over too early. */
  stalled: [id: string]
  /** An error that the worker survives. Without a listener it is written to standard error. */
  error: [error: Error]
  closed: []
}

/** Hands messages of a queue to a processor. It has connections of its own. */
export declare class Worker<Data = any, Value = any> extends EventEmitter {
  constructor(name: string, processor: Processor<Data, Value>, options?: WorkerOptions)
  readonly name: string
  readonly consumer: string
  on<E extends keyof WorkerEvents<Data, Value>>(event: E, listener: (...args: WorkerEvents<Data, Value>[E]) => void): this
  once<E extends keyof WorkerEvents<Data, Value>>(event: E, listener: (...args: WorkerEvents<Data, Value>[E]) => void): this
  off<E extends keyof WorkerEvents<Data, Value>>(event: E, listener: (...args: WorkerEvents<Data, Value>[E]) => void): this
  /** Works until close is called. It is called by the constructor, unless autorun is false. */
  run(): Promise<void>
  /** Ends when the messages that are being handled are done. Others are not begun. */
  close(): Promise<void>
}

/** Thrown by a handler: the message is not tried again, it goes to the dead-letter queue. */
export declare class UnrecoverableError extends Error {}

/** Thrown by a handler: the message is tried again after a number of milliseconds. */
export declare class DelayedError extends Error {
  constructor(delay: number, message?: string)
  readonly delay: number
}

/** Thrown by a handler: no message that names the throttle, as this one does, is delivered for a number of milliseconds. */
export declare class RateLimitError extends Error {
  constructor(throttle: string, duration: number, message?: string)
  readonly throttle: string
  readonly duration: number
}
