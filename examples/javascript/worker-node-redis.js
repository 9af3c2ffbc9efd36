// node worker-node-redis.js: does jobs until SIGTERM or Ctrl-C.
import { setTimeout as sleep } from 'node:timers/promises'
import { createClient } from 'redis'
import { blockMs, host, leaseMs, port, queue, work } from './work.js'

const fila = createClient({ socket: { host, port } })
const waiting = fila.duplicate() // a call that waits holds back its own connection only
for (const c of [fila, waiting]) {
  c.on('error', e => console.error(`the broker is away: ${e.message}`)) // without a listener the process ends
  await c.connect()
}

// Extends a lease for as long as an action takes.
async function kept (receipt, action) {
  const timer = setInterval(() => {
    fila.sendCommand(['FILA.EXTEND', queue, receipt, leaseMs]).catch(e => console.error(e.message))
  }, leaseMs / 3)
  try {
    return await action()
  } finally {
    clearInterval(timer)
  }
}

async function handle (receipt, job) {
  try {
    await kept(receipt, () => work(job))
  } catch (e) {
    await fila.sendCommand(['FILA.NACK', queue, receipt, 'ERROR', e.message])
    return
  }
  await fila.sendCommand(['FILA.ACK', queue, receipt])
}

let stopping = false
for (const s of ['SIGTERM', 'SIGINT']) process.on(s, () => { stopping = true })
while (!stopping) {
  try {
    const messages = await waiting.sendCommand(['FILA.LEASE', queue, 'BLOCK', blockMs, 'VISIBILITY', leaseMs])
    for (const [receipt, job] of messages) await handle(receipt, job)
  } catch (e) {
    console.error(e.message)
    await sleep(1000)
  }
}
await Promise.all([fila.close(), waiting.close()])
