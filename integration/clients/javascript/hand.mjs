// A hand with a client of Node.js: hand.mjs ioredis|ioredis-5|iovalkey|redis|redis-5|redis-4|@valkey/valkey-glide
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const require = createRequire(import.meta.url)
const [name] = process.argv.slice(2)
const library = require(name)
const host = process.env.FILA_HOST
const port = Number(process.env.FILA_PORT)
const protocol = Number(process.env.FILA_RESP) || undefined

class ReplyError extends Error {}

// ioredis and what comes of it: call() for text, callBuffer() for bytes.
class ByIoredis {
  constructor () {
    const Redis = library.default ?? library
    this.usual = process.env.FILA_MODE === 'cluster'
      ? new Redis.Cluster(process.env.FILA_NODES.split(','), { redisOptions: { ...(protocol && { protocol }) } })
      : new Redis({ host, port, ...(protocol && { protocol }) })
    this.waiting = this.usual.duplicate() // a call that waits holds back its own connection only
    for (const c of [this.usual, this.waiting]) c.on('error', () => {}) // or it is printed
  }

  async call (block, args) {
    const client = block === '-' ? this.usual : this.waiting
    try {
      return await client.callBuffer(args[0].toString(), ...args.slice(1))
    } catch (e) {
      throw e.name === 'ReplyError' ? new ReplyError(e.message) : e
    }
  }
}

// node-redis: sendCommand() takes strings and buffers; what bytes become is a mapping.
class ByNodeRedis {
  constructor () {
    this.open()
  }

  open () {
    const client = library.createClient({ socket: { host, port }, ...(protocol && { RESP: protocol }) })
    this.clients = [client, client.duplicate()]
    this.ready = Promise.all(this.clients.map(async c => {
      c.on('error', () => {}) // without a listener it ends the process
      await c.connect()
      return c
    }))
  }

  async call (block, args) {
    let timer
    const late = new Promise((resolve, reject) => {
      // A connection that breaks while it is made may be taken for a good one, on
      // which nothing is answered any more.
      timer = block !== '0' && setTimeout(() => {
        for (const c of this.clients) c.destroy ? c.destroy() : c.disconnect().catch(() => {})
        this.open()
        reject(new Error('no answer'))
      }, 5000 + (Number(block) || 0))
    })
    try {
      const [usual, waiting] = await this.ready
      return await Promise.race([this.send(block === '-' ? usual : waiting, args), late])
    } catch (e) {
      throw e instanceof library.ErrorReply ? new ReplyError(e.message) : e
    } finally {
      clearTimeout(timer)
    }
  }

  send (client, args) {
    if (name === 'redis-4') return client.sendCommand(args, library.commandOptions({ returnBuffers: true }))
    return client.sendCommand(args, { typeMapping: { [library.RESP_TYPES.BLOB_STRING]: Buffer } })
  }
}

// A map comes from valkey-glide as an array of { key, value }.
const isRecord = v => Array.isArray(v) && v.length > 0 && v.every(e => e?.key !== undefined && 'value' in e)

// valkey-glide: customCommand() on a client whose requestTimeout is longer than BLOCK.
class ByGlide {
  clients = new Map()

  constructor () {
    library.Logger.init('off') // it writes to the standard output
  }

  async client (limit) {
    if (!this.clients.has(limit)) {
      this.clients.set(limit, await library.GlideClient.createClient({
        addresses: [{ host, port }],
        requestTimeout: limit, // 250 ms if nothing is said
        ...(protocol && { protocol: library.ProtocolVersion['RESP' + protocol] })
      }))
    }
    return this.clients.get(limit)
  }

  async call (block, args) {
    const limit = block === '-' ? 5000 : Number(block) ? Number(block) + 5000 : 0x7fffffff
    try {
      return await (await this.client(limit)).customCommand(args, { decoder: library.Decoder.Bytes })
    } catch (e) {
      throw e.constructor === library.RequestError ? new ReplyError(e.message) : e
    }
  }
}

function show (v) {
  if (v === null || v === undefined) return '_'
  if (Buffer.isBuffer(v)) return '$' + v.toString('hex')
  if (isRecord(v)) return show(new Map(v.map(e => [e.key, e.value])))
  if (Array.isArray(v)) return ['*' + v.length, ...v.map(show)].join(' ')
  if (v instanceof Map || v?.constructor === undefined || v.constructor === Object) {
    const entries = v instanceof Map ? [...v] : Object.entries(v)
    return ['%' + entries.length, ...entries.flat().map(show)].join(' ')
  }
  return typeof v === 'number' || typeof v === 'bigint' ? ':' + v : show(Buffer.from(String(v)))
}

console.log(JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version)
const hand = name.startsWith('redis') ? new ByNodeRedis() : name.startsWith('io') ? new ByIoredis() : new ByGlide()
for await (const line of createInterface({ input: process.stdin })) {
  const [block, ...words] = line.split(' ')
  try {
    console.log(show(await hand.call(block, words.map(w => Buffer.from(w.slice(1), 'hex')))))
  } catch (e) {
    console.log((e instanceof ReplyError ? '-' : '!') + Buffer.from(e.message).toString('hex'))
  }
}
process.exit(0)
