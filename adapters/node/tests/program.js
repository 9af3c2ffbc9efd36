// program.js URL QUEUE: a worker that takes as long as a message says, in milliseconds, until SIGTERM.
'use strict'

const { setTimeout: sleep } = require('node:timers/promises')
const { Worker } = require('..')

const [connection, queue] = process.argv.slice(2)
const worker = new Worker(queue, async job => {
  console.log('begun', job.attempt)
  await sleep(job.data)
  console.log('done')
}, { connection, lockDuration: 2000, blockFor: 200 })

process.once('SIGTERM', async () => {
  await worker.close()
  console.log('closed')
})
