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
  /** The value, as the handler has returned it. */
  readonly returnvalue: Value
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
  /** For how many milliseconds a lease waits, and so about how long close may take. The default is 1000. */
  blockFor?: number
}

export interface WorkerEvents<Data = any, Value = any> {
  completed: [job: Job<Data>, value: Value]
  failed: [job: Job<Data>, error: unknown]
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
