// node producer-node-redis.js KEY JOB...: enqueues jobs for a tenant.
import { createClient } from 'redis'
import { host, port, queue } from './work.js'

const fila = createClient({ socket: { host, port, reconnectStrategy: false } })
fila.on('error', () => {}) // the calls say it
await fila.connect()
const [key, ...jobs] = process.argv.slice(2)
await fila.sendCommand(['FILA.QUEUE', 'CREATE', queue, 'IFNOTEXISTS'])
for (const job of jobs) {
  console.log(await fila.sendCommand(['FILA.ENQUEUE', queue, job, 'KEY', key, 'HEADER', 'from', 'node-redis']))
}
await fila.close()
