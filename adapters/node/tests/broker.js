// A real broker for tests: the one that TEST_BROKER names.
'use strict'

const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { mkdtempSync, rmSync } = require('node:fs')
const { connect, createServer } = require('node:net')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')
const { Redis } = require('ioredis')

/** How long a test waits for something, in milliseconds: two minutes, times TEST_PATIENCE. */
const patience = 120_000 * Number(process.env.TEST_PATIENCE || 1)

/** Polls a condition. */
async function until (what, condition) {
  for (const end = Date.now() + patience; !await condition(); await sleep(10)) {
    if (Date.now() > end) throw new Error(`not within ${patience} ms: ${what}`)
  }
}

/**
 * A port for a server. The system gives it to no other process until this one ends: it is the port of a
 * connection of this process to itself, and servers may bind it beside that, as they set SO_REUSEADDR.
 */
async function reserve () {
  const server = createServer().listen(0, '127.0.0.1').unref()
  await once(server, 'listening')
  const socket = connect({ host: '127.0.0.1', port: server.address().port, localAddress: '127.0.0.1', localPort: 0 })
  const [other] = await once(server, 'connection')
  other.unref()
  socket.unref()
  return socket.localPort
}

class Broker {
  /** A broker that is not restarted needs no disk. */
  constructor (storage = 'rocksdb') {
    this.storage = storage
  }

  async start () {
    if (!this.port) {
      this.port = await reserve()
      this.directory = mkdtempSync(join(tmpdir(), 'fila-test-'))
      this.url = `fila://127.0.0.1:${this.port}`
      this.client = new Redis(this.port, '127.0.0.1', { maxRetriesPerRequest: null, retryStrategy: () => 20 })
      this.client.on('error', () => {})
    }
    this.process = spawn(process.env.TEST_BROKER, ['--server.listen_addr', `127.0.0.1:${this.port}`, '--storage.path', this.directory, '--storage.engine', this.storage,
      '--admin.listen_addr', '', '--log.level', 'error'], { stdio: ['ignore', 'ignore', 'inherit'] })
    this.ended = once(this.process, 'exit')
    await this.client.ping()
    return this
  }

  async kill () {
    this.process.kill('SIGKILL')
    await this.ended
  }

  async stop () {
    this.client.disconnect()
    await this.kill()
    rmSync(this.directory, { recursive: true })
  }

  /** A field of FILA.QUEUE INFO. */
  async info (queue, field) {
    const fields = await this.client.call('FILA.QUEUE', 'INFO', queue)
    return fields[fields.indexOf(field) + 1]
  }

  /** When the leases of the messages of a queue that are leased end, by their ids. */
  async leases (queue) {
    const [, messages] = await this.client.call('FILA.BROWSE', queue, 'STATUS', 'leased')
    const field = (message, name) => message[message.indexOf(name) + 1]
    return new Map(messages.map(message => [field(message, 'id'), field(message, 'lease_until')]))
  }

  /** Waits until all leases of a queue, of which there are some, have been extended once more. */
  async extends (queue) {
    const before = await this.leases(queue)
    if (before.size === 0) throw new Error(`nothing is leased from ${queue}`)
    await until('the leases are extended', async () => {
      const now = await this.leases(queue)
      return [...before].every(([id, end]) => now.get(id) > end)
    })
  }
}

module.exports = { Broker, patience, until }
