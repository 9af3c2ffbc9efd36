// Queues and workers of Fila, on ioredis.
//
// A worker leases messages and hands them to a function. While that works, the lease is extended. Its
// return acks the message, an exception nacks it. A message is delivered at least once.
//
// The file is CommonJS, which both import and require load.
'use strict'

const { AsyncLocalStorage } = require('node:async_hooks')
const { randomUUID } = require('node:crypto')
const { EventEmitter } = require('node:events')
const { hostname } = require('node:os')
const { setTimeout: sleep } = require('node:timers/promises')
const { Redis } = require('ioredis')

// Milliseconds.
const PAUSE = 500 // after an error of the connection
const BLOCK = 1000 // that a lease waits for messages, and FILA.RESULT for a result
const CROWDED = 50 // that FILA.RESULT waits while others wait for a connection
const SILENCE = 30000 // after which a connection is given up whose broker does not reply

const OPTIONS = [
  'key', 'weight', 'cost', 'throttle', 'budget', 'charge', 'priority', 'delay', 'at', 'ttl', 'dedup', 'unique', 'replace', 'maxdelay', 'until',
  'maxattempts', 'backoff', 'maxbackoff', 'group'
]

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

/** Thrown by a handler: no message that names the throttle is delivered for a number of milliseconds, in any queue. */
class RateLimitError extends Error {
  name = 'RateLimitError'

  constructor (throttle, duration, message = 'rate limited') {
    super(message)
    this.throttle = throttle
    this.duration = duration
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

  // Makes one write of several commands.
  async transact (commands) {
    const transaction = this.#client.multi()
    for (const [name, ...args] of commands) transaction.callBuffer(name, ...args)
    const replies = await transaction.exec()
    return replies.map(([error, reply]) => error ?? reply)
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

// The options of FILA.ENQUEUE for those of BullMQ.
function translated ({ attempts, backoff, deduplication, ...options }) {
  if (attempts !== undefined) options.maxattempts = attempts
  if (typeof backoff === 'object') {
    options.backoff = backoff.delay
    if (backoff.type === 'fixed') options.maxbackoff = backoff.delay
  } else if (backoff !== undefined) {
    options.backoff = backoff
  }
  if (deduplication !== undefined) {
    const { id, replace = false, extend = replace, ttl, maxDelay, keepLastIfActive = false } = deduplication
    if (extend !== replace || ttl !== undefined && ttl !== options.delay) {
      throw new TypeError('deduplication: replace and extend go together, with a ttl that is the delay; use dedup for an id that is remembered for the dedupwindow of the queue')
    }
    Object.assign(options, { unique: id, replace: replace || keepLastIfActive, maxdelay: maxDelay, until: keepLastIfActive ? 'LEASE' : undefined })
  }
  return options
}

function enqueuing (queue, payload, options) {
  return ['FILA.ENQUEUE', queue, bytes(payload), ...flat(options)]
}

// A group whose message is enqueued when its members have ended.
function opening (group, queue, payload, { when, expire, ...options }) {
  return ['FILA.GROUP', 'OPEN', group, queue, bytes(payload), ...flat(options), ...(when ? ['WHEN', when] : []), ...(expire ? ['EXPIRE', expire] : [])]
}

function flat ({ headers, ...options }) {
  const command = []
  for (const [name, values] of Object.entries(translated(options))) {
    if (!OPTIONS.includes(name)) throw new TypeError(`there is no option ${name}, use one of headers, attempts, deduplication, ${OPTIONS.join(', ')}`)
    for (const value of [values].flat()) {
      if (value === true) command.push(name.toUpperCase())
      else if (value !== undefined && value !== false) command.push(name.toUpperCase(), value instanceof Date ? value.getTime() : value)
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

function extending (job, duration) {
  return ['FILA.EXTEND', job.queueName, job.token, duration]
}

function nacking (job, error) {
  const command = ['FILA.NACK', job.queueName, job.token, 'ERROR', String(error)]
  if (error instanceof UnrecoverableError) command.push('DEAD')
  else if (error instanceof DelayedError) command.push('DELAY', error.delay)
  else if (error instanceof RateLimitError) command.push('HOLD', error.throttle, error.duration)
  return command
}

/** A message that is leased. */
class Job {
  #lost = new AbortController()
  #worker
  #batch = [this]

  constructor (worker, [receipt, payload, headers, key, attempt, deliveries, enqueuedAt, leaseUntil, queue]) {
    this.#worker = worker
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

  /** Says how far the work is, as text or JSON of at most 1 KiB, and extends the lease. Results and the dashboard show it. */
  async updateProgress (progress) {
    await this.#worker.progress(this, progress)
  }

  /** The messages of the batch whose first one this is. */
  getBatch () {
    return this.#batch
  }

  /** Has this message of a batch fail, whatever becomes of the others. */
  setAsFailed (error) {
    this.failure = error
  }

  // For Worker.
  lose (reason) {
    this.#lost.abort(reason)
  }

  lead (batch) {
    this.#batch = batch
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
    this.progress = fields.progress?.toString() ?? null
  }

  /** The value that the handler has returned. */
  get returnvalue () {
    return this.value?.length ? JSON.parse(this.value) : undefined
  }
}

// Waits for results, on connections of its own.
class Results {
  #pool
  #closed = false

  constructor (to, max = 16) {
    this.#pool = new Pool(to, max)
  }

  async of (queue, id, { timeout = Infinity, signal } = {}) {
    const end = Date.now() + timeout
    for (;;) {
      const left = Math.max(0, end - Date.now())
      try {
        const reply = await this.#pool.use((connection, crowded) => {
          const wait = Math.min(left, crowded ? CROWDED : BLOCK)
          return connection.call(['FILA.RESULT', queue, id, ...(wait > 0 ? ['BLOCK', Math.ceil(wait)] : [])])
        })
        const result = reply === null ? undefined : new Result(reply)
        if (result?.status !== 'pending' || left === 0 || signal?.aborted) return result
      } catch (e) {
        if (refused(e) && !TEMPORARY.test(e.message) || left === 0 || signal?.aborted || this.#closed) throw e
        await sleep(Math.min(left, PAUSE))
      }
    }
  }

  close () {
    this.#closed = true
    this.#pool.close()
  }
}

/** A message that Queue.add has stored. */
class AddedJob {
  #results

  constructor (results, queueName, id, name, data) {
    this.#results = results
    this.queueName = queueName
    this.id = id
    this.name = name
    this.data = data
  }

  /** Resolves to what the handler returned, or is rejected with its error once the message is dead. */
  async waitUntilFinished (timeout) {
    const result = await this.#results.of(this.queueName, this.id, { timeout })
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

  constructor (name, { connection, settings = {}, resultConnections } = {}) {
    this.name = name
    this.#settings = settings
    this.#connection = new Connection(connection)
    this.#results = new Results(connection, resultConnections)
  }

  /** Creates the queue unless it exists. */
  async create () {
    await this.#connection.call(creation(this.name, this.#settings))
  }

  /** Stores a message with data as JSON and its name as the header name. */
  async add (name, data, options = {}) {
    const id = await this.enqueue(...packed(name, data, options))
    return new AddedJob(this.#results, this.name, id, name, data)
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
  result (id, options) {
    return this.#results.of(this.name, id, options)
  }

  /** Closes the connections. */
  async close () {
    this.#connection.close()
    this.#results.close()
  }
}

// The payload and the options of a message with a name and data.
function packed (name, data, { headers, ...options } = {}) {
  return [JSON.stringify(data) ?? '', { ...options, headers: { name, ...headers } }]
}

/** A group of messages: when all of them have ended, its message is enqueued. Messages join with the option group. */
class Group {
  #connection
  #settings

  constructor (name, { connection, settings = {} } = {}) {
    this.name = name
    this.#settings = settings
    this.#connection = new Connection(connection)
  }

  /** Opens the group, with the message that is enqueued at its end: false if there is a group of the name, which stays as it is. */
  async open (queueName, name, data, options = {}) {
    const command = opening(this.name, queueName, ...packed(name, data, options))
    try {
      return await this.#connection.call(command) === 1
    } catch (e) {
      if (!refused(e, 'NOQUEUE')) throw e
    }
    await this.#connection.call(creation(queueName, this.#settings))
    return await this.#connection.call(command) === 1
  }

  /** Has the group take no more members, and returns how many are pending. */
  seal () {
    return this.#connection.call(['FILA.GROUP', 'SEAL', this.name])
  }

  /** Cancels the group, its message and the members that are not being handled: false if it has ended. */
  async cancel () {
    return await this.#connection.call(['FILA.GROUP', 'CANCEL', this.name]) === 1
  }

  /** The state of the group and the numbers of its members; undefined if it is not known. */
  get () {
    return stateOf(this.#connection, this.name)
  }

  /** Waits until the group is done or cancelled, or for a timeout, and returns what get does. */
  wait (timeout) {
    return ended(this.#connection, this.name, timeout)
  }

  /** Closes the connection. */
  async close () {
    this.#connection.close()
  }
}

async function stateOf (connection, group) {
  const reply = await connection.call(['FILA.GROUP', 'GET', group])
  if (reply === null) return undefined
  const state = {}
  for (let i = 0; i < reply.length; i += 2) state[reply[i].toString()] = Buffer.isBuffer(reply[i + 1]) ? reply[i + 1].toString() : reply[i + 1]
  return state
}

// Groups have no reply that waits.
async function ended (connection, group, timeout = Infinity) {
  for (let end = Date.now() + timeout, pause = 10; ; pause = Math.min(2 * pause, PAUSE)) {
    let state
    try {
      state = await stateOf(connection, group)
      if (state === undefined || state.ended_at !== null || Date.now() >= end) return state
    } catch (e) {
      if (refused(e) && !TEMPORARY.test(e.message) || Date.now() >= end) throw e
    }
    await sleep(Math.min(pause, Math.max(end - Date.now(), 1)))
  }
}

/** The message of a flow that has children, which is enqueued after them. */
class FlowJob extends AddedJob {
  #connection

  constructor (results, connection, group, { queueName, name, data }) {
    super(results, queueName, undefined, name, data)
    this.#connection = connection
    this.group = group
  }

  async waitUntilFinished (timeout = Infinity) {
    const end = Date.now() + timeout
    const state = await ended(this.#connection, this.group, timeout)
    if (state?.state !== 'done') throw new Error(state ? `group ${this.group} is ${state.state}: ${state.pending} pending, ${state.dead} dead${state.error ? `, ${state.error}` : ''}` : `group ${this.group} is not known`)
    this.id = state.message
    return super.waitUntilFinished(Math.max(end - Date.now(), 0))
  }
}

/** Adds trees of messages: a parent is enqueued when its children are done. Queues are created when they are missing, with settings. */
class FlowProducer {
  #connection
  #results
  #settings

  constructor ({ connection, settings = {}, resultConnections } = {}) {
    this.#settings = settings
    this.#connection = new Connection(connection)
    this.#results = new Results(connection, resultConnections)
  }

  /** Adds a flow, { name, queueName, data, opts, children }, in one write. Returns { job, children } for each of its messages. */
  async add (flow) {
    if (!flow.children?.length) throw new TypeError('a flow has children, use Queue.add for one message')
    const commands = []
    const nodes = []
    const tree = this.#plan(flow, undefined, commands, nodes)
    await this.#create(new Set(nodes.map(n => n.queueName)))
    const replies = await this.#connection.transact(commands)
    const error = replies.find(r => r instanceof Error)
    if (error) { // the others were applied
      await this.#connection.call(['FILA.GROUP', 'CANCEL', tree.job.group])
      throw error
    }
    commands.forEach(([name], i) => { if (name === 'FILA.ENQUEUE') nodes[i].job.id = replies[i].toString() })
    return tree
  }

  // Notes the commands of a flow, and for each the node that it concerns.
  #plan (flow, outer, commands, nodes) {
    const { name, queueName, data, opts, children = [] } = flow
    const [payload, { when = 'DONE', expire, ...options }] = packed(name, data, { ...opts, ...(outer && { group: outer }) })
    const note = (node, command) => { commands.push(command); nodes.push(node) }
    if (children.length === 0) {
      const node = { queueName, job: new AddedJob(this.#results, queueName, undefined, name, data) }
      note(node, enqueuing(queueName, payload, options))
      return node
    }
    const group = `flow:${randomUUID()}`
    const node = { queueName, job: new FlowJob(this.#results, this.#connection, group, flow) }
    note(node, opening(group, queueName, payload, { ...options, when, expire }))
    node.children = children.map(child => this.#plan(child, group, commands, nodes))
    note(node, ['FILA.GROUP', 'SEAL', group])
    return node
  }

  async #create (queues) {
    if (await this.#connection.call(['EXISTS', ...queues]) === queues.size) return
    for (const queue of queues) await this.#connection.call(creation(queue, this.#settings))
  }

  /** Closes the connections. */
  async close () {
    this.#connection.close()
    this.#results.close()
  }
}

/**
 * Hands up to concurrency messages at a time to a processor. lockDuration is the time of a lease, which is extended
 * at a third of it; after it the messages of a worker that died are delivered again. With batch, { size }, the processor gets the
 * first of up to size messages of one key, whose getBatch has all of them.
 */
class Worker extends EventEmitter {
  #processor
  #concurrency
  #lockDuration
  #blockFor
  #settings
  #batch
  #connection
  #leases // a connection that blocks
  #busy = new Set() // promises
  #freed = () => {}
  #running
  #closing
  #stopping = false

  constructor (name, processor, { connection, concurrency = 1, lockDuration = 30000, autorun = true, name: consumer, settings, batch, blockFor = BLOCK } = {}) {
    super()
    this.name = name
    this.consumer = consumer ?? `${hostname()}:${process.pid}`
    this.#processor = processor
    this.#concurrency = concurrency
    this.#lockDuration = lockDuration
    this.#blockFor = blockFor
    this.#settings = settings
    this.#batch = batch
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

  async #lease (free) {
    let leased
    try {
      const count = this.#batch ? [this.#batch.size, 'SAMEKEY'] : [free]
      leased = await this.#leases.call(['FILA.LEASE', this.name, 'COUNT', ...count, 'BLOCK', this.#blockFor,
        'VISIBILITY', this.#lockDuration, 'CONSUMER', this.consumer], this.#blockFor)
    } catch (e) {
      await this.#missed(e)
      return
    }
    const jobs = leased.map(fields => new Job(this, fields))
    if (this.#batch) jobs[0]?.lead(jobs)
    for (const job of this.#batch ? jobs.slice(0, 1) : jobs) {
      const work = this.#stopping ? Promise.all(job.getBatch().map(j => this.#release(j))) : this.#handle(job)
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

  async #handle (first) {
    const jobs = first.getBatch()
    const lost = new AbortController() // all of them
    const extend = async job => {
      await this.#extend(job)
      if (jobs.every(j => j.signal.aborted)) lost.abort(job.signal.reason)
    }
    const timer = setInterval(() => jobs.forEach(extend), this.#lockDuration / 3)
    let value, error
    try {
      value = await handled.run(first, async () => this.#processor(first, first.token, lost.signal))
    } catch (e) {
      error = e ?? new Error('the processor has thrown nothing')
    }
    clearInterval(timer)
    await Promise.all(jobs.map(job => this.#end(job, job.failure ?? error, this.#batch ? undefined : value)))
  }

  async #end (job, error, value) {
    try {
      if (error !== undefined) return await this.#fail(job, error)
      if (job.signal.aborted) return // the ack would change nothing
      let command
      try {
        command = acking(job, value)
      } catch (e) { // a value that is no JSON
        return await this.#fail(job, e)
      }
      try {
        await this.#settle(command)
      } catch (e) {
        if (!refused(e)) throw e
        return await this.#fail(job, e) // such as for a result that is too big
      }
      this.#emit('completed', job, value)
    } catch (e) {
      this.#report(e)
    }
  }

  async #fail (job, error) {
    if (!job.signal.aborted) {
      try {
        await this.#settle(nacking(job, error))
      } catch (e) {
        if (!(error instanceof RateLimitError) || !refused(e, 'INVALID')) throw e
        this.#report(e)
        await this.#settle(nacking(job, String(error))) // the message does not name the throttle
      }
    }
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

  // For Job.updateProgress.
  async progress (job, progress) {
    try {
      await this.#connection.call([...extending(job, this.#lockDuration), 'PROGRESS', typeof progress === 'string' ? progress : JSON.stringify(progress)])
    } catch (e) {
      if (refused(e, 'LEASELOST') || refused(e, 'CANCELLED')) this.#lose(job, e)
      throw e
    }
    this.#emit('progress', job, progress)
  }

  async #extend (job) {
    try {
      await this.#connection.call(extending(job, this.#lockDuration))
    } catch (e) {
      if (!refused(e) || TEMPORARY.test(e.message)) this.#report(e)
      else this.#lose(job, e)
    }
  }

  #lose (job, error) {
    if (job.signal.aborted) return
    job.lose(error)
    this.#emit('stalled', job.id)
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

module.exports = { Queue, Worker, FlowProducer, Group, Job, Result, AddedJob, FlowJob, UnrecoverableError, DelayedError, RateLimitError }
