// A transport of NestJS microservices for Fila: FilaTransport serves a queue, FilaClient sends to it.
//
// The payload of a message is Nest's packet as JSON. Its pattern is the header "pattern" as well, for hooks,
// operators, and producers without Nest.
'use strict'

const { BaseRpcContext, ClientProxy, Server } = require('@nestjs/microservices')
const { DelayedError, Queue, UnrecoverableError, Worker } = require('fila-worker')
const { lastValueFrom } = require('rxjs')

// The text of Nest's own transports.
const NO_HANDLER = 'There is no matching message handler defined in the remote service.'

/** Data that is sent, with options of FILA.ENQUEUE. */
class FilaRecord {
  constructor (data, options = {}) {
    this.data = data
    this.options = options
  }
}

/** What a handler gets as its @Ctx(). */
class FilaContext extends BaseRpcContext {
  getJob () {
    return this.args[0]
  }

  getPattern () {
    return this.args[1]
  }
}

/** Serves the messages of a queue: what was sent is answered, what was emitted is acked. */
class FilaTransport extends Server {
  transportId = Symbol('fila')
  #options
  #worker
  #listeners = []

  constructor (options) {
    super()
    this.#options = options
    this.initializeSerializer(options)
    this.initializeDeserializer(options)
  }

  listen (callback) {
    const { queue, serializer, deserializer, ...options } = this.#options
    this.#worker = new Worker(queue, job => this.#handle(job), { concurrency: 16, ...options })
    this.#worker.on('error', e => this.logger.error(e.message))
    for (const [event, listener] of this.#listeners) this.#worker.on(event, listener)
    callback()
  }

  /** Ends when the messages that are being handled are done. */
  async close () {
    await this.#worker?.close()
  }

  /** Adds a listener of events of the worker. */
  on (event, listener) {
    this.#listeners.push([event, listener])
    this.#worker?.on(event, listener)
  }

  unwrap () {
    return this.#worker
  }

  async #handle (job) {
    const { id, pattern, data } = await this.deserializer.deserialize(parsed(job.payload), { channel: job.headers.pattern })
    const route = this.normalizePattern(pattern ?? '')
    const handler = this.getHandlerByPattern(route)
    const answers = id !== undefined
    if (!handler && !answers) throw failure(new UnrecoverableError(`there is no handler for the pattern ${route}`))
    const answer = { id, isDisposed: true }
    try {
      if (!handler) throw NO_HANDLER
      const result = await handler(data, new FilaContext([job, route]))
      answer.response = await lastValueFrom(this.transformToObservable(result), { defaultValue: undefined })
    } catch (e) {
      const text = textOf(e)
      if (e?.dead) throw failure(new UnrecoverableError(text))
      if (e?.delay !== undefined) throw failure(new DelayedError(e.delay, text))
      if (!answers) throw failure(new Error(text))
      answer.err = e instanceof Error ? { status: 'error', message: text } : e
    }
    return answers ? this.serializer.serialize(answer) : undefined
  }
}

function parsed (payload) {
  try {
    return JSON.parse(payload)
  } catch {
    return payload.toString()
  }
}

// An error whose text is its message alone.
function failure (error) {
  return Object.assign(error, { name: '' })
}

function textOf (error) {
  return error?.message ?? (typeof error === 'string' ? error : JSON.stringify(error))
}

/** Sends to a queue that FilaTransport serves. */
class FilaClient extends ClientProxy {
  #options
  #queue

  constructor (options) {
    super()
    this.#options = options
    this.initializeSerializer(options)
    this.initializeDeserializer(options)
  }

  async connect () {
    const { queue, serializer, deserializer, ...options } = this.#options
    this.#queue ??= new Queue(queue, options)
  }

  async close () {
    await this.#queue?.close()
    this.#queue = undefined
  }

  on () {
    throw new Error('a FilaClient has no events: its calls fail with the errors of the connection')
  }

  unwrap () {
    return this.#queue
  }

  dispatchEvent (packet) {
    return this.#enqueue(packet)
  }

  publish (packet, callback) {
    const left = new AbortController()
    this.#answer(this.assignPacketId(packet), left.signal).then(callback, err => callback({ err }))
    return () => left.abort()
  }

  async #enqueue ({ pattern, data, id }) {
    const record = data instanceof FilaRecord ? data : new FilaRecord(data)
    const { headers, ...options } = record.options
    const packet = await this.serializer.serialize({ pattern, data: record.data, id })
    return this.#queue.enqueue(JSON.stringify(packet), { ...options, headers: { pattern: this.normalizePattern(pattern), ...headers } })
  }

  async #answer (packet, signal) {
    const id = await this.#enqueue(packet)
    const result = await this.#queue.result(id, { signal })
    switch (result?.status) {
      case undefined:
        return { err: { status: 'error', message: `the answer to message ${id} is not known, or not any more` } }
      case 'dead':
        return { err: { status: 'error', message: result.error } }
      case 'pending': // the caller has left
        return { isDisposed: true }
    }
    return { ...await this.deserializer.deserialize(result.returnvalue), isDisposed: true }
  }
}

module.exports = { FilaClient, FilaContext, FilaRecord, FilaTransport }
