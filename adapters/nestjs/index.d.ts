import {
  BaseRpcContext, ClientProxy, Server, type ConsumerDeserializer, type ConsumerSerializer, type CustomTransportStrategy,
  type ProducerDeserializer, type ProducerSerializer, type ReadPacket, type WritePacket
} from '@nestjs/microservices'
import type { Job, JobOptions, Queue, QueueOptions, Worker, WorkerEvents, WorkerOptions } from 'fila-worker'

/** Data that is sent, with options of FILA.ENQUEUE. */
export declare class FilaRecord<Data = any> {
  constructor(data: Data, options?: JobOptions)
  readonly data: Data
  readonly options: JobOptions
}

/** What a handler gets as its @Ctx(). */
export declare class FilaContext extends BaseRpcContext<[Job, string]> {
  getJob(): Job
  getPattern(): string
}

export interface FilaTransportOptions extends Omit<WorkerOptions, 'autorun'> {
  /** The queue that is served. concurrency is 16, unless it is given. */
  queue: string
  serializer?: ConsumerSerializer
  deserializer?: ConsumerDeserializer
}

/** Serves the messages of a queue: what was sent is answered, what was emitted is acked. */
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
  protected publish(packet: ReadPacket, callback: (packet: WritePacket) => void): () => void
  protected dispatchEvent<T = any>(packet: ReadPacket): Promise<T>
}
