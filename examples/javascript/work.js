// What a job is, in these examples.
export async function work (job) {
  const [verb, ...rest] = job.split(' ')
  const text = rest.join(' ')
  if (verb === 'say') console.log(text)
  else if (verb === 'sleep') await new Promise(resolve => setTimeout(resolve, Number(text) * 1000))
  else throw new Error(text)
}

export const queue = process.env.FILA_QUEUE ?? 'jobs'
export const leaseMs = process.env.FILA_LEASE_MS ?? '30000'
export const blockMs = '2000' // how long it may take to see that it is to stop
export const host = process.env.FILA_HOST ?? '127.0.0.1'
export const port = Number(process.env.FILA_PORT ?? 5555)
