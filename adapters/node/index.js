// Queues and workers of Fila, on ioredis.
//
// A worker leases messages and hands them to a function. While that works, the lease is extended. Its
// return acks the message, an exception nacks it. A message is delivered at least once.
//
// The file is CommonJS, which both import and require load.
'use strict'

const { AsyncLocalStorage } = require('node:async_hooks')
const { EventEmitter } = require('node:events')
const { hostname } = require('node:os')
const { setTimeout: sleep } = require('node:timers/promises')
const { Redis } = require('ioredis')

// Milliseconds.
const PAUSE = 500 // after an error of the connection
const BLOCK = 1000 // that a lease waits for messages, and FILA.RESULT for a result
const CROWDED = 50 // that FILA.RESULT waits while others wait for a connection
const SILENCE = 30000 // after which a connection is given up whose broker does not reply

const OPTIONS = ['key', 'weight', 'cost', 'throttle', 'budget', 'charge', 'priority', 'delay', 'at', 'ttl', 'dedup', 'unique']

// Headers that what a handler adds has from the message that it handles.
const TRACE = ['traceparent', 'tracestate']

const handled = new AsyncLocalStorage() // the job that a handler works on

const DEFAULTS = { host: '127.0.0.1', port: 5555, keepAlive: 30000, retryStrategy: times => Math.min(times * 50, PAUSE) }

// Whatever the caller's client does: a command that is sent again happens again, a lease whose reply is given up keeps its
// messages, and replies have one shape with all versions of ioredis. The socketTimeout of ioredis 5 ends also the connection
// that comes after the one it was set for.
const SAFE = {
  maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false, commandTimeout: undefined, socketTimeout: undefined, protocol: 2, stringNumbers: false
}

// Refusals that end by themselves.
const TEMPORARY = /^(LOADING|MISCONF|CLUSTERDOWN|READONLY|OOM) /

/** Thrown by a handler: the message is not tried again, it goes to the dead-letter queue. */
class UnrecoverableError extends Error {
  name = 'UnrecoverableError'
}

/** Thrown by a handler: the message is tried again after a number of milliseconds. */
class DelayedError extends Error {
  name = 'DelayedError'

  constructor (delay, message = 'retry') {
    super(message)
    this.delay = delay
  }
}

// A connection of its own: to a URL, with options of ioredis, or as a client of ioredis has it.
class Connection {
  #client
  #error // the last one of the socket

  constructor (to = {}) {
    if (typeof to === 'string') {
      this.#client = new Redis(to.replace(/^fila(s?):/, 'redis$1:'), { ...DEFAULTS, ...SAFE })
    } else if (typeof to.duplicate === 'function') {
      this.#client = to.duplicate(SAFE)
    } else {
      this.#client = new Redis({ ...DEFAULTS, ...to, ...SAFE })
    }
    this.#client.on('error', e => { this.#error = e }) // the command is rejected, too
    this.#client.on('ready', () => { this.#error = undefined })
  }

  // block is the time for which the command waits.
  async call ([name, ...args], block = 0) {
    const silent = setTimeout(() => this.#client.disconnect(true), block + SILENCE)
    try {
      return await this.#client.callBuffer(name, ...args)
    } catch (e) {
      if (refused(e)) throw e
      const why = e.name === 'MaxRetriesPerRequestError' ? 'the connection has ended' : e.message
      throw new Error(`the broker cannot be reached: ${this.#error?.message ?? why}`, { cause: e })
    } finally {
      clearTimeout(silent)
    }
  }

  close () {
    this.#client.disconnect()
  }
}

// Whether the broker has replied an error; code is that of the reply.
function refused (error, code = '') {
  return error.name === 'ReplyError' && error.message.startsWith(code)
}

// Connections for commands that block, at most a number of them.
class Pool {
  #to
  #max
  #all = []
  #idle = []
  #waiting = [] // of functions that take a connection

  constructor (to, max) {
    this.#to = to
    this.#max = max
  }

  async use (action) {
    const connection = this.#idle.pop() ?? (this.#all.length < this.#max ? this.#open() : await new Promise(resolve => this.#waiting.push(resolve)))
    try {
      return await action(connection, this.#waiting.length > 0)
    } finally {
      const next = this.#waiting.shift()
      if (next) next(connection)
      else this.#idle.push(connection)
    }
  }

  #open () {
    const connection = new Connection(this.#to)
    this.#all.push(connection)
    return connection
  }

  close () {
    for (const connection of this.#all) connection.close()
  }
}

function bytes (value) {
  return value instanceof Uint8Array && !Buffer.isBuffer(value) ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}

// What a handler returns, as the RESULT of its ack.
function resultOf (value) {
  return value instanceof Uint8Array ? bytes(value) : JSON.stringify(value)
}

// The commands, as lists of arguments.

function creation (queue, settings) {
  const command = ['FILA.QUEUE', 'CREATE', queue, 'IFNOTEXISTS']
  for (const [name, value] of Object.entries(settings)) {
    if (name === 'nodlq') {
      if (value) command.push('NODLQ')
    } else if (value !== undefined) {
      command.push(name.toUpperCase(), typeof value === 'boolean' ? (value ? 'ON' : 'OFF') : value)
    }
  }
  return command
}

function enqueuing (queue, payload, { headers, ...options }) {
  const command = ['FILA.ENQUEUE', queue, bytes(payload)]
  for (const [name, values] of Object.entries(options)) {
    if (!OPTIONS.includes(name)) throw new TypeError(`there is no option ${name}, use one of headers, ${OPTIONS.join(', ')}`)
    for (const value of [values].flat()) {
      if (value !== undefined) command.push(name.toUpperCase(), value instanceof Date ? value.getTime() : value)
    }
  }
  const trace = handled.getStore()?.headers ?? {}
  const inherited = Object.fromEntries(TRACE.filter(name => name in trace).map(name => [name, trace[name]]))
  for (const [name, value] of Object.entries({ ...inherited, ...headers })) {
    if (value !== undefined) command.push('HEADER', name, value)
  }
  return command
}

// An ack without RESULT would be known to those alone that wait already: nothing is an empty one.
function acking (job, value) {
  return ['FILA.ACK', job.queueName, job.token, 'RESULT', resultOf(value) ?? '']
}

function nacking (job, error) {
  const command = ['FILA.NACK', job.queueName, job.token, 'ERROR', String(error)]
  if (error instanceof UnrecoverableError) command.push('DEAD')
  else if (error instanceof DelayedError) command.push('DELAY', error.delay)
  return command
}

/** A message that is leased. */
class Job {
  #lost = new AbortController()

  constructor ([receipt, payload, headers, key, attempt, deliveries, enqueuedAt, leaseUntil, queue]) {
    this.token = receipt.toString()
    this.id = this.token.split(':')[0]
    this.payload = payload
    this.headers = {}
    for (let i = 0; i < headers.length; i += 2) this.headers[headers[i].toString()] = headers[i + 1].toString()
    this.name = this.headers.name ?? ''
    this.key = key.toString()
    this.attempt = attempt
    this.attemptsMade = attempt - 1
    this.deliveries = deliveries
    this.timestamp = enqueuedAt
    this.leaseUntil = leaseUntil
    this.queueName = queue.toString()
  }

  /** The value that Queue.add was called with. */
  get data () {
    return this.payload.length === 0 ? undefined : JSON.parse(this.payload)
  }

  /** Is aborted when the lease is over too early, such as by FILA.CANCEL. */
  get signal () {
    return this.#lost.signal
  }

  // For Worker.
  lose (reason) {
    this.#lost.abort(reason)
  }
}

/** What has become of a message. */
class Result {
  constructor (reply) {
    const fields = {}
    for (let i = 0; i < reply.length; i += 2) fields[reply[i].toString()] = reply[i + 1]
    this.status = fields.status.toString()
    this.value = fields.value
    this.error = fields.error?.toString() ?? null
  }

  /** The value that the handler has returned. */
  get returnvalue () {
    return this.value?.length ? JSON.parse(this.value) : undefined
  }
}

/** A message that Queue.add has stored. */
class AddedJob {
  #queue

  constructor (queue, id, name, data) {
    this.#queue = queue
    this.id = id
    this.name = name
    this.data = data
  }

  /** Resolves to what the handler returned, or is rejected with its error once the message is dead. */
  async waitUntilFinished (timeout) {
    const result = await this.#queue.result(this.id, { timeout })
    if (result?.status === 'done') return result.returnvalue
    if (result?.status === 'dead') throw new Error(result.error)
    throw new Error(result ? `message ${this.id} is not finished after ${timeout} ms` : `the result of message ${this.id} is not known`)
  }
}

/** A queue. It is created when it is missing, with settings: the options of FILA.QUEUE CREATE, such as maxattempts. */
class Queue {
  #settings
  #connection
  #results
  #closed = false

  constructor (name, { connection, settings = {}, resultConnections = 16 } = {}) {
    this.name = name
    this.#settings = settings
    this.#connection = new Connection(connection)
    this.#results = new Pool(connection, resultConnections)
  }

  /** Creates the queue unless it exists. */
  async create () {
    await this.#connection.call(creation(this.name, this.#settings))
  }

  /** Stores a message with data as JSON and its name as the header name. */
  async add (name, data, { headers, ...options } = {}) {
    const id = await this.enqueue(JSON.stringify(data) ?? '', { ...options, headers: { name, ...headers } })
    return new AddedJob(this, id, name, data)
  }

  /** Stores a message with a payload as it is, and returns its id. */
  async enqueue (payload, options = {}) {
    const command = enqueuing(this.name, payload, options)
    try {
      return (await this.#connection.call(command)).toString()
    } catch (e) {
      if (!refused(e, 'NOQUEUE')) throw e
    }
    await this.create()
    return (await this.#connection.call(command)).toString()
  }

  /** Waits for what becomes of a message, without a timeout until it has ended; undefined if it is not known. */
  async result (id, { timeout = Infinity, signal } = {}) {
    const end = Date.now() + timeout
    for (;;) {
      const left = Math.max(0, end - Date.now())
      try {
        const reply = await this.#results.use((connection, crowded) => {
          const wait = Math.min(left, crowded ? CROWDED : BLOCK)
          return connection.call(['FILA.RESULT', this.name, id, ...(wait > 0 ? ['BLOCK', Math.ceil(wait)] : [])])
        })
        const result = reply === null ? undefined : new Result(reply)
        if (result?.status !== 'pending' || left === 0 || signal?.aborted) return result
      } catch (e) {
        if (refused(e) && !TEMPORARY.test(e.message) || left === 0 || signal?.aborted || this.#closed) throw e
        await sleep(Math.min(left, PAUSE))
      }
    }
  }

  /** Closes the connections. */
  async close () {
    this.#closed = true
    this.#connection.close()
    this.#results.close()
  }
}

/**
 * Hands up to concurrency messages at a time to a processor. lockDuration is the time of a lease, which is extended
 * at a third of it; after it the messages of a worker that died are delivered again.
 */
class Worker extends EventEmitter {
  #processor
  #concurrency
  #lockDuration
  #blockFor
  #settings
  #connection
  #leases // a connection that blocks
  #busy = new Set() // promises
  #freed = () => {}
  #running
  #closing
  #stopping = false

  constructor (name, processor, { connection, concurrency = 1, lockDuration = 30000, autorun = true, name: consumer, settings, blockFor = BLOCK } = {}) {
    super()
    this.name = name
    this.consumer = consumer ?? `${hostname()}:${process.pid}`
    this.#processor = processor
    this.#concurrency = concurrency
    this.#lockDuration = lockDuration
    this.#blockFor = blockFor
    this.#settings = settings
    this.#connection = new Connection(connection)
    this.#leases = new Connection(connection)
    if (autorun) this.run()
  }

  /** Works until close is called. It is called by the constructor, unless autorun is false. */
  run () {
    this.#running ??= this.#run()
    return this.#running
  }

  /** Ends when the messages that are being handled are done. Others are not begun. */
  close () {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close () {
    this.#stopping = true
    await this.#running
    this.#connection.close()
    this.#leases.close()
    this.#emit('closed')
  }

  async #run () {
    while (!this.#stopping) {
      const free = this.#concurrency - this.#busy.size
      if (free === 0) await new Promise(resolve => { this.#freed = resolve })
      else await this.#lease(free)
    }
    await Promise.all(this.#busy)
  }

  async #lease (count) {
    let leased
    try {
      leased = await this.#leases.call(['FILA.LEASE', this.name, 'COUNT', count, 'BLOCK', this.#blockFor,
        'VISIBILITY', this.#lockDuration, 'CONSUMER', this.consumer], this.#blockFor)
    } catch (e) {
      await this.#missed(e)
      return
    }
    for (const job of leased.map(fields => new Job(fields))) {
      const work = this.#stopping ? this.#release(job) : this.#handle(job)
      this.#busy.add(work)
      work.finally(() => {
        this.#busy.delete(work)
        this.#freed()
      })
    }
  }

  // A lease was refused, or the broker cannot be reached. A queue that does not exist is waited for.
  async #missed (error) {
    if (!refused(error, 'NOQUEUE')) {
      this.#report(error)
    } else if (this.#settings) {
      try {
        await this.#connection.call(creation(this.name, this.#settings))
        return
      } catch (e) {
        this.#report(e)
      }
    }
    await sleep(PAUSE)
  }

  async #release (job) {
    try {
      await this.#settle(['FILA.RELEASE', job.queueName, job.token])
    } catch (e) {
      this.#report(e)
    }
  }

  async #handle (job) {
    const timer = setInterval(() => this.#extend(job), this.#lockDuration / 3)
    try {
      let value, command
      try {
        value = await handled.run(job, async () => this.#processor(job, job.token, job.signal))
        command = acking(job, value)
      } catch (e) {
        clearInterval(timer)
        await this.#fail(job, e)
        return
      }
      clearInterval(timer)
      if (job.signal.aborted) return // the ack would change nothing
      try {
        await this.#settle(command)
      } catch (e) {
        if (!refused(e)) throw e
        await this.#fail(job, e) // such as for a result that is too big
        return
      }
      this.#emit('completed', job, value)
    } catch (e) {
      this.#report(e)
    }
  }

  async #fail (job, error) {
    if (!job.signal.aborted) await this.#settle(nacking(job, error))
    this.#emit('failed', job, error)
  }

  // Ends a lease. While the broker cannot be reached it tries again, until the lease would be over.
  async #settle (command) {
    const end = Date.now() + this.#lockDuration
    for (;;) {
      try {
        return await this.#connection.call(command)
      } catch (e) {
        if (refused(e) && !TEMPORARY.test(e.message) || Date.now() > end) throw e
        this.#report(e)
      }
      await sleep(PAUSE)
    }
  }

  async #extend (job) {
    try {
      await this.#connection.call(['FILA.EXTEND', job.queueName, job.token, this.#lockDuration])
    } catch (e) {
      if (!refused(e) || TEMPORARY.test(e.message)) {
        this.#report(e)
      } else if (!job.signal.aborted) {
        job.lose(e)
        this.#emit('stalled', job.id)
      }
    }
  }

  #emit (event, ...args) {
    try {
      this.emit(event, ...args)
    } catch (e) {
      this.#report(e)
    }
  }

  #report (error) {
    if (this.listenerCount('error') > 0) this.emit('error', error)
    else console.error(`fila: worker of ${this.name}:`, error)
  }
}

module.exports = { Queue, Worker, Job, Result, AddedJob, UnrecoverableError, DelayedError }
