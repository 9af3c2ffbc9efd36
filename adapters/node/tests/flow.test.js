// What a message can do beside being handled, with a real broker: groups, batches, progress, ids that replace, holds.
'use strict'

const assert = require('node:assert/strict')
const { once } = require('node:events')
const { after, before, describe, test } = require('node:test')
const { FlowProducer, Group, Queue, RateLimitError, Worker } = require('..')
const { Broker, patience, until } = require('./broker.js')

const broker = new Broker('memory')
before(() => broker.start())
after(() => broker.stop())

// Something that is closed with the test.
function closed (t, closes) {
  t.after(() => closes.close())
  return closes
}

const queueOf = (t, name, settings) => closed(t, new Queue(name, { connection: broker.url, settings: { backoff: 0, ...settings } }))
const workerOf = (t, name, processor, options) => closed(t, new Worker(name, processor, { connection: broker.url, blockFor: 200, ...options }))

describe('a flow', { concurrency: true }, () => {
  test('enqueues a parent when its children are done, and theirs before', async t => {
    const flow = closed(t, new FlowProducer({ connection: broker.url }))
    const order = []
    for (const name of ['pages', 'chapters', 'books']) workerOf(t, name, job => { order.push(job.data); return job.headers['fila-group-done'] })
    const book = await flow.add({
      name: 'bind', queueName: 'books', data: 'book', children: [
        { name: 'typeset', queueName: 'chapters', data: 'chapter', children: [1, 2, 3].map(n => ({ name: 'print', queueName: 'pages', data: n, opts: { key: 'acme' } })) },
        { name: 'print', queueName: 'pages', data: 4 }
      ]
    })
    assert.equal(await book.job.waitUntilFinished(patience), '2')
    assert.equal(await book.children[0].job.waitUntilFinished(patience), '3')
    assert.equal(await book.children[0].children[2].job.waitUntilFinished(patience), undefined)
    assert.deepEqual(await Promise.all(book.children.map(child => child.job.waitUntilFinished(patience))), ['3', undefined])
    assert.deepEqual(order.filter(data => typeof data === 'string'), ['chapter', 'book'])
    assert.ok(order.indexOf('chapter') > Math.max(...[1, 2, 3].map(n => order.indexOf(n))), `${order}`)
    assert.equal(order.length, 6)
  })

  test('waits for a child that is dead, or not', async t => {
    const flow = closed(t, new FlowProducer({ connection: broker.url, settings: { maxattempts: 1 } }))
    workerOf(t, 'parts', job => { if (job.data) throw new Error('broken') })
    workerOf(t, 'wholes', job => job.headers['fila-group-dead'])
    const children = [true, false].map(data => ({ name: 'part', queueName: 'parts', data }))
    const strict = await flow.add({ name: 'whole', queueName: 'wholes', children })
    const loose = await flow.add({ name: 'whole', queueName: 'wholes', opts: { when: 'ENDED' }, children })
    assert.equal(await loose.job.waitUntilFinished(patience), '1')
    await assert.rejects(strict.job.waitUntilFinished(100), /is sealed: 0 pending, 1 dead/)
    await broker.client.call('FILA.PURGE', 'parts.dlq')
    assert.equal(await strict.job.waitUntilFinished(patience), '0')
  })

  test('that is refused is cancelled', async t => {
    const flow = closed(t, new FlowProducer({ connection: broker.url, settings: { maxdepth: 1 } }))
    const queue = queueOf(t, 'full', { maxdepth: 1 })
    await queue.add('one')
    await assert.rejects(flow.add({ name: 'end', queueName: 'ends', children: [{ name: 'two', queueName: 'full' }] }), /MAXDEPTH/)
    const [, groups] = await broker.client.call('FILA.GROUP', 'LIST')
    assert.ok(!JSON.stringify(groups).includes('"ends"'))
    await assert.rejects(flow.add({ name: 'end', queueName: 'ends' }), /a flow has children/)
    await assert.rejects(flow.add({ name: 'end', queueName: 'ends', children: [{ name: 'x', queueName: 'ends', opts: { wait: 1 } }] }), /there is no option wait/)
  })
})

describe('a group', { concurrency: true }, () => {
  test('waits for its members', async t => {
    const pages = queueOf(t, 'members')
    const group = closed(t, new Group('import-7', { connection: broker.url }))
    assert.equal(await group.open('summaries', 'summary', { of: 7 }, { expire: 3600000 }), true)
    assert.equal(await group.open('summaries', 'summary', {}), false)
    for (let n = 0; n < 3; n++) await pages.add('page', n, { group: 'import-7' })
    assert.equal(await group.seal(), 3)
    await assert.rejects(pages.add('page', 3, { group: 'import-7' }), /SEALED/)
    assert.deepEqual([(await group.wait(0)).state, (await group.get()).pending], ['sealed', 3])
    workerOf(t, 'members', () => {})
    const { state, done, message } = await group.wait(patience)
    assert.deepEqual([state, done], ['done', 3])
    const summaries = queueOf(t, 'summaries')
    assert.equal((await summaries.result(message, { timeout: 0 })).status, 'pending')
  })

  test('may be cancelled', async t => {
    const queue = queueOf(t, 'cancelled')
    const group = closed(t, new Group('import-8', { connection: broker.url }))
    await group.open('cancelled', 'summary', {})
    await queue.add('page', 1, { group: 'import-8' })
    assert.equal(await group.cancel(), true)
    assert.equal((await group.wait(patience)).state, 'cancelled')
    const unknown = closed(t, new Group('nothing', { connection: broker.url }))
    assert.equal(await unknown.get(), undefined)
  })
})

describe('a message', { concurrency: true }, () => {
  test('tells its progress', async t => {
    const queue = queueOf(t, 'progress')
    let end
    const ended = new Promise(resolve => { end = resolve })
    t.after(() => end())
    const worker = workerOf(t, 'progress', async job => {
      await job.updateProgress('3 of 7')
      await job.updateProgress({ page: 4 })
      await ended
    })
    const events = []
    worker.on('progress', (job, progress) => events.push(progress))
    const job = await queue.add('long')
    await until('there is progress', async () => (await queue.result(job.id, { timeout: 0 })).progress === '{"page":4}')
    await until('the worker is told that it is recorded', () => events.length >= 2)
    assert.deepEqual(events, ['3 of 7', { page: 4 }])
    end()
    await job.waitUntilFinished(patience)
  })

  test('that reports progress without a lease is told so', async t => {
    const queue = queueOf(t, 'late')
    const worker = workerOf(t, 'late', async job => {
      await broker.client.call('FILA.CANCEL', 'late', job.id)
      await job.updateProgress(1)
    })
    const stalled = once(worker, 'stalled')
    const { id } = await queue.add('long')
    assert.deepEqual(await stalled, [id])
  })

  test('has attempts and a backoff of its own', async t => {
    const queue = queueOf(t, 'attempts', { maxattempts: 1, backoff: 60000 })
    const times = []
    workerOf(t, 'attempts', job => { times.push(Date.now()); throw new Error('no') })
    const job = await queue.add('try', {}, { attempts: 3, backoff: { type: 'fixed', delay: 100 } })
    await assert.rejects(job.waitUntilFinished(patience), /no/)
    assert.equal(times.length, 3)
    assert.ok(times[2] - times[0] >= 140, `${times}`) // two backoffs, with jitter
  })

  test('is replaced by the next one with its id', async t => {
    const queue = queueOf(t, 'debounced')
    const deduplication = { id: 'sync:acme', ttl: 2000, extend: true, replace: true }
    const [first, second] = [await queue.add('sync', 1, { delay: 2000, deduplication }), await queue.add('sync', 2, { delay: 2000, deduplication: { ...deduplication, maxDelay: 60000 } })]
    const plain = await queue.add('other', 1, { deduplication: { id: 'other' } })
    assert.equal((await queue.add('other', 2, { deduplication: { id: 'other' } })).id, plain.id)
    const handled = []
    workerOf(t, 'debounced', job => { handled.push([job.name, job.data]) })
    assert.equal(first.id, second.id)
    await Promise.all([second, plain].map(job => job.waitUntilFinished(patience)))
    assert.deepEqual(handled.sort(), [['other', 1], ['sync', 2]])
    await assert.rejects(queue.add('x', 1, { deduplication: { id: 'x', ttl: 5000 } }), /dedupwindow/)
  })

  test('frees its id when it begins', async t => {
    const queue = queueOf(t, 'until', { ordered: true })
    const deduplication = { id: 'sync', keepLastIfActive: true }
    const handled = []
    let end
    const ended = new Promise(resolve => { end = resolve })
    t.after(() => end())
    workerOf(t, 'until', async job => { handled.push(job.data); await ended })
    await queue.add('sync', 1, { deduplication })
    await until('it has begun', () => handled.length === 1)
    const waiting = await queue.add('sync', 2, { deduplication })
    assert.equal((await queue.add('sync', 3, { deduplication })).id, waiting.id)
    end()
    await waiting.waitUntilFinished(patience)
    assert.deepEqual(handled, [1, 3])
  })

  test('holds a throttle, if it names it', async t => {
    const queue = queueOf(t, 'held')
    const times = { x: [], none: [] }
    const errors = []
    const worker = workerOf(t, 'held', job => {
      times[job.name].push(Date.now())
      if (job.attempt === 1) throw new RateLimitError('provider:x', 500)
    })
    worker.on('error', e => errors.push(e.message))
    const [x, none] = [await queue.add('x', {}, { throttle: 'provider:x' }), await queue.add('none')]
    await Promise.all([x.waitUntilFinished(patience), none.waitUntilFinished(patience)])
    assert.ok(times.x[1] - times.x[0] >= 490, `${times.x}`)
    assert.equal(times.none.length, 2)
    assert.match(errors[0], /INVALID.*provider:x/)
  })
})

describe('a batch', { concurrency: true }, () => {
  test('is of one key, and its messages may fail alone', async t => {
    const queue = queueOf(t, 'batches', { maxattempts: 1 })
    const jobs = []
    for (let n = 0; n < 6; n++) jobs.push(await queue.add('n', n, { key: n % 2 ? 'odd' : 'even' }))
    const batches = []
    workerOf(t, 'batches', job => {
      const batch = job.getBatch()
      batches.push([job.key, batch.map(j => j.data)])
      for (const one of batch) if (one.data === 3) one.setAsFailed(new Error('three'))
    }, { batch: { size: 10 } })
    await assert.rejects(jobs[3].waitUntilFinished(patience), { message: 'Error: three' })
    for (const n of [0, 1, 2, 4, 5]) assert.equal(await jobs[n].waitUntilFinished(patience), undefined)
    assert.deepEqual(batches.sort(), [['even', [0, 2, 4]], ['odd', [1, 3, 5]]])
  })

  test('fails as a whole, and is extended', async t => {
    const queue = queueOf(t, 'failing-batches')
    const attempts = []
    for (let n = 0; n < 3; n++) await queue.add('n', n)
    workerOf(t, 'failing-batches', async job => {
      attempts.push(...job.getBatch().map(j => j.attempt))
      if (job.attempt === 1) throw new Error('again')
      await broker.extends('failing-batches')
    }, { batch: { size: 3 }, lockDuration: 4500 })
    await until('all are done', async () => await broker.info('failing-batches', 'acked') === 3)
    assert.deepEqual([attempts.filter(a => a === 1).length, await broker.info('failing-batches', 'expired')], [3, 0])
  })
})
