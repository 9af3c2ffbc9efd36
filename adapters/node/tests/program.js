// program.js URL QUEUE: a worker until SIGTERM. A message has a list: how long each attempt takes, in milliseconds.
// An attempt that is not in it ends 2500 ms, which is longer than a lease, after SIGTERM.
'use strict'

const { once } = require('node:events')
const { setTimeout: sleep } = require('node:timers/promises')
const { Worker } = require('..')

const [connection, queue] = process.argv.slice(2)
const closing = once(process, 'SIGTERM')
const worker = new Worker(queue, async job => {
  console.log('begun', job.attempt)
  const ms = job.data[job.attempt - 1]
  await (ms === undefined ? closing.then(() => sleep(2500)) : sleep(ms))
  console.log('done')
}, { connection, lockDuration: 2000, blockFor: 200 })

closing.then(async () => {
  await worker.close()
  console.log('closed')
})
