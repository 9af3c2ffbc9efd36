// program.js URL QUEUE: a worker until SIGTERM. A message has a list: how long each attempt takes, in milliseconds.
// An attempt that is not in it ends at SIGUSR2.
'use strict'

const { once } = require('node:events')
const { setTimeout: sleep } = require('node:timers/promises')
const { Worker } = require('..')

const [connection, queue] = process.argv.slice(2)
const worker = new Worker(queue, async job => {
  console.log('begun', job.attempt)
  const ms = job.data[job.attempt - 1]
  await (ms === undefined ? once(process, 'SIGUSR2') : sleep(ms))
  console.log('done')
}, { connection, lockDuration: 4500, blockFor: 200 })

process.once('SIGTERM', async () => {
  const closed = worker.close()
  console.log('closing')
  await closed
  console.log('closed')
})
