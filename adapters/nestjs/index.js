// A transport of NestJS microservices for Fila: FilaTransport serves a queue, FilaClient sends to it.
//
// The payload of a message is Nest's packet as JSON. Its pattern is the header "pattern" as well, for hooks,
// operators, and producers without Nest.
'use strict'

const { BaseRpcContext, ClientProxy, Server } = require('@nestjs/microservices')
const { DelayedError, Group, Queue, RateLimitError, UnrecoverableError, Worker } = require('fila-worker')
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

  /** The messages of a batch that have the pattern, as the payload has their data. */
  getBatch () {
    return this.args[2]
  }

  /** Says how far the work is, and extends the lease. */
  updateProgress (progress) {
    return this.args[0].updateProgress(progress)
  }
}

/**
 * Serves the messages of a queue: what was sent is answered, what was emitted is acked. With batch, { size }, a handler gets the
 * data of up to size messages of one key that were emitted with its pattern.
 */
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
    this.#worker = new Worker(queue, job => options.batch ? this.#handleBatch(job.getBatch()) : this.#handle(job), { concurrency: 16, ...options })
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
      answer.response = await this.#result(handler, data, new FilaContext([job, route, [job]]))
    } catch (e) {
      const said = thrown(e)
      if (said) throw said
      if (!answers) throw failure(new Error(textOf(e)))
      answer.err = e instanceof Error ? { status: 'error', message: textOf(e) } : e
    }
    return answers ? this.serializer.serialize(answer) : undefined
  }

  async #result (handler, data, context) {
    return lastValueFrom(this.transformToObservable(await handler(data, context)), { defaultValue: undefined })
  }

  async #handleBatch (jobs) {
    const patterns = new Map() // pattern: [jobs, data]
    for (const job of jobs) {
      const { id, pattern, data } = await this.deserializer.deserialize(parsed(job.payload), { channel: job.headers.pattern })
      const route = this.normalizePattern(pattern ?? '')
      if (id !== undefined) {
        job.setAsFailed(failure(new UnrecoverableError('a service with batches answers nothing')))
      } else if (!this.getHandlerByPattern(route)) {
        job.setAsFailed(failure(new UnrecoverableError(`there is no handler for the pattern ${route}`)))
      } else {
        const [its, values] = patterns.get(route) ?? patterns.set(route, [[], []]).get(route)
        its.push(job)
        values.push(data)
      }
    }
    for (const [route, [its, values]] of patterns) {
      try {
        await this.#result(this.getHandlerByPattern(route), values, new FilaContext([its[0], route, its]))
      } catch (e) {
        for (const job of its) job.setAsFailed(job.failure ?? thrown(e) ?? failure(new Error(textOf(e))))
      }
    }
  }
}

function parsed (payload) {
  try {
    return JSON.parse(payload)
  } catch {
    return payload.toString()
  }
}

// What an RpcException says becomes of its message, if it does.
function thrown (e) {
  if (e?.dead) return failure(new UnrecoverableError(textOf(e)))
  if (e?.hold !== undefined) return failure(new RateLimitError(e.throttle, e.hold, textOf(e)))
  if (e?.delay !== undefined) return failure(new DelayedError(e.delay, textOf(e)))
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

  /** Opens a group: pattern and data are emitted when its members, with the option group, have ended. Closing it is the caller's. */
  async openGroup (name, pattern, data) {
    const { queue, connection, settings } = this.#options
    const record = data instanceof FilaRecord ? data : new FilaRecord(data)
    const { headers, ...options } = record.options
    const route = this.normalizePattern(pattern)
    const group = new Group(name, { connection, settings })
    try {
      await group.open(queue, route, await this.serializer.serialize({ pattern, data: record.data }), { ...options, headers: { pattern: route, ...headers } })
    } catch (e) {
      await group.close()
      throw e
    }
    return group
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
