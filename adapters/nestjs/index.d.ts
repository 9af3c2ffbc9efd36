import {
  BaseRpcContext, ClientProxy, Server, type ConsumerDeserializer, type ConsumerSerializer, type CustomTransportStrategy,
  type ProducerDeserializer, type ProducerSerializer, type ReadPacket, type WritePacket
} from '@nestjs/microservices'
import type { Group, GroupOptions, Job, JobOptions, Queue, QueueOptions, Worker, WorkerEvents, WorkerOptions } from 'fila-worker'

/** Data that is sent, with options of FILA.ENQUEUE. */
export declare class FilaRecord<Data = any> {
  /** Those of GroupOptions for openGroup. */
  constructor(data: Data, options?: JobOptions | GroupOptions)
  readonly data: Data
  readonly options: JobOptions | GroupOptions
}

/** What a handler gets as its @Ctx(). */
export declare class FilaContext extends BaseRpcContext<[Job, string, Job[]]> {
  /** The message, or the first one of a batch. */
  getJob(): Job
  getPattern(): string
  /** The messages of a batch that have the pattern, as the payload has their data. */
  getBatch(): Job[]
  /** Says how far the work is, and extends the lease. */
  updateProgress(progress: any): Promise<void>
}

export interface FilaTransportOptions extends Omit<WorkerOptions, 'autorun'> {
  /** The queue that is served. concurrency is 16, unless it is given. */
  queue: string
  serializer?: ConsumerSerializer
  deserializer?: ConsumerDeserializer
}

/**
 * Serves the messages of a queue: what was sent is answered, what was emitted is acked. With batch, { size }, a handler gets the
 * data of up to size messages of one key that were emitted with its pattern.
 */
export declare class FilaTransport extends Server implements CustomTransportStrategy {
  constructor(options: FilaTransportOptions)
  readonly transportId: symbol
  listen(callback: () => void): void
  /** Ends when the messages that are being handled are done. */
  close(): Promise<void>
  /** Adds a listener of events of the worker. */
  on<E extends string = keyof WorkerEvents, L extends Function = (...args: any[]) => void>(event: E, listener: L): void
  unwrap<T = Worker>(): T
}

export interface FilaClientOptions extends QueueOptions {
  /** The queue that is sent to. */
  queue: string
  serializer?: ProducerSerializer
  deserializer?: ProducerDeserializer
}

/** Sends to a queue that FilaTransport serves. */
export declare class FilaClient extends ClientProxy {
  constructor(options: FilaClientOptions)
  connect(): Promise<void>
  close(): Promise<void>
  on(): never
  unwrap<T = Queue>(): T
  /** Opens a group: pattern and data are emitted when its members, with the option group, have ended. Closing it is the caller's. */
  openGroup(name: string, pattern: any, data: any): Promise<Group>
  protected publish(packet: ReadPacket, callback: (packet: WritePacket) => void): () => void
  protected dispatchEvent<T = any>(packet: ReadPacket): Promise<T>
}
