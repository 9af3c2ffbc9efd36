// A real broker for tests: the one that TEST_BROKER names.
'use strict'

const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { mkdtempSync, rmSync } = require('node:fs')
const { createServer } = require('node:net')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')
const { Redis } = require('ioredis')

/** Polls a condition. */
async function until (what, condition, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; !await condition(); await sleep(10)) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`)
  }
}

class Broker {
  /** A broker that is not restarted needs no disk. */
  constructor (storage = 'rocksdb') {
    this.storage = storage
  }

  async start () {
    if (!this.port) {
      const server = createServer().listen(0, '127.0.0.1')
      await once(server, 'listening')
      this.port = server.address().port
      server.close()
      await once(server, 'close')
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
}

module.exports = { Broker, until }
