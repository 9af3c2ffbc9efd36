// Queues and workers with a real broker.
'use strict'

const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { join } = require('node:path')
const { createInterface } = require('node:readline')
const { after, before, describe, test } = require('node:test')
const { DelayedError, Queue, UnrecoverableError, Worker } = require('..')
const { Broker, patience, until } = require('./broker.js')

const broker = new Broker('memory')
before(() => broker.start())
after(() => broker.stop())

// A queue and a worker of it, which are closed with the test.
function pair (t, name, processor, { settings, ...options } = {}, at = broker) {
  const queue = new Queue(name, { connection: at.url, settings: { backoff: 0, ...settings } })
  const worker = new Worker(name, processor, { connection: at.url, blockFor: 200, ...options })
  const errors = []
  worker.on('error', e => errors.push(e))
  t.after(() => Promise.all([worker.close(), queue.close()]))
  return { queue, worker, errors }
}

// A worker in a process of its own, and the lines that it prints.
function program (t, queue) {
  const child = spawn(process.execPath, [join(__dirname, 'program.js'), broker.url, queue], { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = []
  createInterface({ input: child.stdout }).on('line', line => lines.push(line))
  t.after(() => child.kill('SIGKILL'))
  return { child, lines, ended: once(child, 'exit') }
}

describe('a worker', { concurrency: true }, () => {
  test('that returns nothing is known to have ended by who waits afterwards', async t => {
    const { queue, worker } = pair(t, 'nothing', () => {})
    const completed = once(worker, 'completed')
    const added = await queue.add('end', {})
    await completed
    assert.equal(await added.waitUntilFinished(patience), undefined)
    assert.equal((await queue.result(added.id)).status, 'done')
  })

  test('handles messages and answers them', async t => {
    const jobs = []
    const { queue, worker, errors } = pair(t, 'jobs', job => {
      jobs.push(job)
      return { of: job.data }
    }, { settings: { maxattempts: 7, ordered: false } })
    const completed = once(worker, 'completed')
    const added = await queue.add('greet', { to: 'you' }, { key: 'acme', throttle: ['a', 'b'], headers: { lang: 'en' }, priority: 7 })
    assert.deepEqual(await added.waitUntilFinished(patience), { of: { to: 'you' } })
    const { id, name, headers, key, attempt, attemptsMade } = jobs[0]
    assert.deepEqual({ id, name, headers, key, attempt, attemptsMade },
      { id: added.id, name: 'greet', headers: { name: 'greet', lang: 'en' }, key: 'acme', attempt: 1, attemptsMade: 0 })
    assert.deepEqual((await completed)[1], { of: { to: 'you' } })
    assert.equal(await broker.info('jobs', 'max_attempts'), 7)
    assert.equal(await queue.result('019b76da-a800-7a3c-8f00-4b1a52c5d0e1', { timeout: 0 }), undefined)
    await assert.rejects(queue.add('greet', {}, { tries: 3 }), /there is no option tries/)
    assert.deepEqual(errors, []) // the queue did not exist at first
  })

  test('handles bytes, also with clients of ioredis 6', async t => {
    const { Redis } = require('ioredis-6')
    const client = new Redis(broker.port, { stringNumbers: true })
    t.after(() => client.disconnect())
    const all = Buffer.from(Array.from({ length: 256 }, (_, n) => n))
    const { queue } = pair(t, 'bytes', job => job.attempt === 1 && Buffer.concat([job.payload, all]), {}, { url: client })
    const id = await queue.enqueue(new Uint8Array(all))
    const result = await queue.result(id)
    assert.equal(result.status, 'done')
    assert.deepEqual(result.value, Buffer.concat([all, all]))
  })

  test('tries again what has failed, until it is dead', async t => {
    const tries = []
    const { queue, worker } = pair(t, 'failing', job => {
      tries.push(job.attempt)
      throw new TypeError('not a number')
    }, { settings: { maxattempts: 3, backoff: 20 } })
    const failures = []
    worker.on('failed', (job, e) => failures.push(e.message))
    const added = await queue.add('fail', 1)
    await assert.rejects(added.waitUntilFinished(patience), { message: 'TypeError: not a number' })
    assert.deepEqual(tries, [1, 2, 3])
    await until('it has failed three times', () => failures.length === 3)
    assert.equal(await broker.info('failing.dlq', 'dead'), 1)
  })

  test('does what an error says', async t => {
    const times = []
    const { queue } = pair(t, 'errors', job => {
      if (job.name === 'dead') throw new UnrecoverableError('no such order')
      times.push(Date.now())
      if (job.attempt === 1) throw new DelayedError(300)
      return 'done'
    })
    const [dead, later] = [await queue.add('dead'), await queue.add('later')]
    await assert.rejects(dead.waitUntilFinished(), { message: 'UnrecoverableError: no such order' })
    assert.equal(await later.waitUntilFinished(), 'done')
    assert.ok(times[1] - times[0] >= 290, `${times}`)
  })

  test('gets delayed messages when they are due', async t => {
    const { queue } = pair(t, 'delayed', () => Date.now())
    const from = Date.now()
    const [soon, date] = [await queue.add('soon', {}, { delay: 300 }), await queue.add('date', {}, { at: new Date(from + 400) })]
    const times = [await soon.waitUntilFinished() - from, await date.waitUntilFinished() - from]
    assert.ok(times[0] >= 299 && times[1] >= 399, `${times}`)
  })

  test('extends leases, and handles as many as it may', async t => {
    let working = 0; let most = 0; let done = 0
    let end
    const ended = new Promise(resolve => { end = resolve })
    t.after(() => end())
    const { queue } = pair(t, 'long', async () => {
      most = Math.max(most, ++working)
      await ended
      working--
      done++
    }, { concurrency: 3, lockDuration: 4500 })
    for (let n = 0; n < 5; n++) await queue.add('wait', n)
    await until('three are handled', () => working === 3)
    await broker.extends('long')
    assert.deepEqual([working, await broker.info('long', 'ready'), await broker.info('long', 'expired')], [3, 2, 0])
    end()
    await until('all are done', () => done === 5)
    assert.equal(most, 3)
  })

  test('aborts a handler whose lease is lost', async t => {
    const { queue, worker } = pair(t, 'lost', (job, token, signal) => once(signal, 'abort'), { lockDuration: 600 })
    const stalled = once(worker, 'stalled')
    const id = await queue.enqueue('x')
    await until('it is leased', () => broker.info('lost', 'leased'))
    await broker.client.call('FILA.CANCEL', 'lost', id)
    assert.deepEqual(await stalled, [id])
  })

  test('that closes ends what it has begun', async t => {
    let end
    const ended = new Promise(resolve => { end = resolve })
    t.after(() => end())
    let begun = 0
    const { queue, worker } = pair(t, 'closed', () => { begun++; return ended })
    for (let n = 0; n < 3; n++) await queue.add('wait', n)
    await until('one is handled', () => begun === 1)
    const closed = worker.close()
    end()
    await closed
    assert.deepEqual(await Promise.all(['acked', 'ready', 'leased'].map(f => broker.info('closed', f))), [1, 2, 0])
  })

  test('hands the trace on', async t => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    const { queue: second } = pair(t, 'second', job => job.headers)
    const { queue: first } = pair(t, 'first', async () => second.enqueue('next'))
    const id = await (await first.add('begin', {}, { headers: { traceparent } })).waitUntilFinished()
    assert.deepEqual((await second.result(id)).returnvalue, { traceparent })
  })

  test('serves a quiet tenant behind a hundred noisy ones', async t => {
    const order = []
    const queue = new Queue('tenants', { connection: broker.url })
    t.after(() => queue.close())
    await queue.create()
    await Promise.all(Array.from({ length: 1000 }, (_, n) => queue.add('noise', n, { key: `noisy-${n % 100}` })))
    const quiet = await queue.add('quiet', 0, { key: 'quiet' })
    const worker = new Worker('tenants', job => { order.push(job.key) }, { connection: broker.url, blockFor: 200 })
    t.after(() => worker.close())
    await quiet.waitUntilFinished()
    assert.ok(order.indexOf('quiet') <= 100, `${order.indexOf('quiet')} messages were before it`)
  })

  test('that is killed leaves its message to another one', async t => {
    const killed = program(t, 'killed')
    const queue = new Queue('killed', { connection: broker.url, settings: { backoff: 0 } })
    t.after(() => queue.close())
    const added = await queue.add('sleep', [patience, 0])
    await until('it has begun', () => killed.lines.length > 0)
    killed.child.kill('SIGKILL')
    await killed.ended
    const other = program(t, 'killed')
    assert.equal(await added.waitUntilFinished(patience), undefined)
    await until('it is done', () => other.lines.includes('done'))
    assert.deepEqual([killed.lines, other.lines], [['begun 1'], ['begun 2', 'done']])
  })

  test('ends in order at SIGTERM', async t => {
    const { child, lines, ended } = program(t, 'stopped')
    const queue = new Queue('stopped', { connection: broker.url })
    t.after(() => queue.close())
    for (let n = 0; n < 2; n++) await queue.add('sleep', [])
    await until('it has begun', () => lines.length > 0)
    child.kill('SIGTERM')
    await until('it closes', () => lines.includes('closing'))
    await broker.extends('stopped')
    child.kill('SIGUSR2')
    assert.deepEqual(await ended, [0, null])
    await until('its output has ended', () => lines.includes('closed'))
    assert.deepEqual(lines, ['begun 1', 'closing', 'done', 'closed'])
    assert.deepEqual(await Promise.all(['acked', 'ready', 'leased'].map(f => broker.info('stopped', f))), [1, 1, 0])
  })

  test('goes on when the broker was killed', async t => {
    const own = await new Broker().start()
    t.after(() => own.stop())
    const got = new Set()
    const { queue, errors } = pair(t, 'jobs', job => { got.add(job.data) }, { concurrency: 2, lockDuration: 4500 }, own)
    await queue.add('n', 'before')
    await until('the first is done', () => got.size === 1)
    for (let n = 0; n < 5; n++) await queue.add('n', n, { delay: 500 })
    await own.kill()
    await assert.rejects(queue.add('n', 'lost'), /the broker cannot be reached/)
    await own.start()
    await until('all are done', () => got.size === 6)
    assert.ok(errors.some(e => /the broker cannot be reached/.test(e.message)), `${errors}`)
  })
})
