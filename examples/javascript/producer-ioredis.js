// node producer-ioredis.js KEY JOB...: enqueues jobs for a tenant.
import Redis from 'ioredis'
import { host, port, queue } from './work.js'

const fila = new Redis({ host, port, maxRetriesPerRequest: 0 }) // an enqueue that is sent again may be two messages
const [key, ...jobs] = process.argv.slice(2)
await fila.call('FILA.QUEUE', 'CREATE', queue, 'IFNOTEXISTS')
for (const job of jobs) {
  console.log(await fila.call('FILA.ENQUEUE', queue, job, 'KEY', key, 'HEADER', 'from', 'ioredis'))
}
fila.disconnect()
