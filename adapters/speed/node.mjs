// A worker of fila-worker beside one of BullMQ, each with eight jobs at a time.
import { createRequire } from 'node:module'
import { appendFileSync } from 'node:fs'

const [kind, jobs] = process.argv.slice(2)
const require = createRequire(new URL(kind === 'fila' ? '../node/tests/' : '../../integration/peers/bullmq/', import.meta.url))
const { Queue, Worker } = kind === 'fila' ? await import('../node/index.js') : require('bullmq')
const connection = kind === 'fila' ? process.env.URL : { host: '127.0.0.1', port: Number(process.env.PORT), maxRetriesPerRequest: null }

if (jobs) {
  const queue = new Queue('default', { connection })
  await queue.add('note', {})
  let left = Number(jobs) - 1
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (left-- > 0) await queue.add('note', {}, kind === 'fila' ? {} : { removeOnComplete: true })
  }))
  await queue.close()
  process.exit()
}
const worker = new Worker('default', async () => appendFileSync(process.env.NOTES, '.'), { connection, concurrency: 8 })
worker.on('error', console.error)
