// Microservices of NestJS with a real broker. The application is app.ts.
'use strict'

const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { createInterface } = require('node:readline')
const { after, before, describe, test } = require('node:test')
const { firstValueFrom, lastValueFrom, timeout } = require('rxjs')
const { FilaRecord } = require('fila-nestjs')
const { client, keys, record, seen, serve } = require(process.env.BUILT)
const { Broker, patience, until } = require('../../node/tests/broker.js')

const broker = new Broker('memory')
before(() => broker.start())
after(() => broker.stop())

const answer = observable => lastValueFrom(observable.pipe(timeout(patience)))

// A client of a queue that is served here, or not.
async function service (t, queue, { served = true, at = broker, batch } = {}) {
  const app = served && await serve(at.url, queue, batch)
  const sender = client(at.url, queue)
  t.after(() => Promise.all([app && app.close(), sender.close()]))
  return sender
}

// A service in a process of its own, and the lines that it prints.
function program (t, queue) {
  const child = spawn(process.execPath, [process.env.BUILT, broker.url, queue], { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = []
  createInterface({ input: child.stdout }).on('line', line => lines.push(line))
  t.after(() => child.kill('SIGKILL'))
  return { child, lines, ended: once(child, 'exit') }
}

describe('a service', { concurrency: true }, () => {
  test('answers what is sent', async t => {
    const sender = await service(t, 'sent')
    assert.equal(await answer(sender.send('sum', [1, 2, 3])), 6)
    assert.equal(await answer(sender.send({ cmd: 'last' }, ['a', 'b'])), 'b')
    const many = await Promise.all(Array.from({ length: 100 }, (_, n) => answer(sender.send('sum', [n, 1]))))
    assert.deepEqual(many, Array.from({ length: 100 }, (_, n) => n + 1))
    const context = await answer(sender.send('context', record({}, 'acme')))
    assert.deepEqual(context, {
      pattern: 'context', key: 'acme', attempt: 1,
      headers: { pattern: 'context', traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }
    })
  })

  test('answers with errors, and tries again what says so', async t => {
    const sender = await service(t, 'errors')
    await assert.rejects(answer(sender.send('refuse', 'no such order')), { status: 'error', message: 'no such order' })
    await assert.rejects(answer(sender.send('refuse', { code: 7 })), { code: 7 })
    await assert.rejects(answer(sender.send('break', {})), { status: 'error', message: 'Internal server error' })
    await assert.rejects(answer(sender.send('nothing', {})), e => /no matching message handler/.test(e))
    assert.equal(await broker.info('errors', 'nacked'), 0)
    assert.equal(await answer(sender.send('retry', {})), 'at attempt 3')
    await assert.rejects(answer(sender.send('refuse', { message: 'never', dead: true })), { status: 'error', message: 'never' })
    assert.equal(await broker.info('errors.dlq', 'dead'), 1)
  })

  test('handles what is emitted until it is dead', async t => {
    const sender = await service(t, 'emitted')
    const queue = (await sender.connect(), sender.unwrap())
    await answer(sender.emit('seen', { n: 1 }))
    await until('both handlers have it', () => seen.length === 2)
    assert.deepEqual(seen.splice(0), [['first', { n: 1 }], ['second', { n: 1 }]])
    const failed = await queue.result(await answer(sender.emit('fail', 'not a number')))
    assert.deepEqual([failed.status, failed.error], ['dead', 'not a number'])
    assert.deepEqual(seen.splice(0), [['not a number', 1], ['not a number', 2], ['not a number', 3]])
    const unknown = await queue.result(await answer(sender.emit('nothing', {})))
    assert.deepEqual([unknown.status, unknown.error], ['dead', 'there is no handler for the pattern nothing'])
    // Without Nest: plain JSON, and the pattern as a header.
    await broker.client.call('FILA.ENQUEUE', 'emitted', '{"n":2}', 'HEADER', 'pattern', 'seen')
    await until('both handlers have it', () => seen.length === 2)
    assert.deepEqual(seen.splice(0), [['first', { n: 2 }], ['second', { n: 2 }]])
  })

  test('serves a quiet tenant behind a hundred noisy ones', async t => {
    const sender = await service(t, 'tenants', { served: false })
    await Promise.all(Array.from({ length: 1000 }, (_, n) => answer(sender.emit('sum', record([n], `noisy-${n % 100}`)))))
    const quiet = answer(sender.send('sum', record([1, 2], 'quiet')))
    await until('it is enqueued', async () => await broker.info('tenants', 'ready') === 1001)
    await service(t, 'tenants')
    assert.equal(await quiet, 3)
    const before = keys.filter(key => key !== 'default').indexOf('quiet')
    assert.ok(before >= 0 && before <= 116, `${before} were served before it`) // a round, and what is handled at a time
  })

  test('leaves what a caller does not wait for any more', async t => {
    const sender = await service(t, 'left', { served: false })
    await assert.rejects(firstValueFrom(sender.send('sum', [1]).pipe(timeout(100))), { name: 'TimeoutError' })
    await until('it is in the queue', () => broker.info('left', 'ready').catch(() => 0))
  })

  test('that is killed leaves its message to another one', async t => {
    const killed = program(t, 'killed')
    const sender = await service(t, 'killed', { served: false })
    await answer(sender.emit('sleep', [patience, 0]))
    await until('it has begun', () => killed.lines.length > 0)
    killed.child.kill('SIGKILL')
    await killed.ended
    const other = program(t, 'killed')
    await until('it is done', () => other.lines.includes('done'))
    assert.deepEqual([killed.lines, other.lines], [['begun 1'], ['begun 2', 'done']])
  })

  test('ends in order at SIGTERM', async t => {
    const { child, lines, ended } = program(t, 'stopped')
    const sender = await service(t, 'stopped', { served: false })
    await answer(sender.emit('sleep', []))
    await until('it has begun', () => lines.length > 0)
    child.kill('SIGTERM')
    await until('it closes', () => lines.includes('closing'))
    await answer(sender.emit('sleep', [0])) // to a lease that waits, if there is one: it is released
    await until('it is not taken', () => broker.info('stopped', 'ready'))
    await broker.extends('stopped')
    child.kill('SIGUSR2')
    assert.deepEqual(await ended, [null, 'SIGTERM'])
    await until('its output has ended', () => lines.includes('done'))
    assert.deepEqual(lines, ['begun 1', 'closing', 'done'])
    assert.deepEqual(await Promise.all(['acked', 'ready', 'leased', 'expired'].map(f => broker.info('stopped', f))), [1, 1, 0, 0])
  })

  test('goes on when the broker was killed, and so do its callers', async t => {
    const own = await new Broker().start()
    t.after(() => own.stop())
    const sender = await service(t, 'jobs', { at: own })
    assert.equal(await answer(sender.send('sum', [1])), 1)
    const later = answer(sender.send('sum', new FilaRecord([1, 1], { delay: 3000 })))
    await until('it is enqueued', async () => await own.info('jobs', 'enqueued') === 2)
    await own.kill()
    await assert.rejects(answer(sender.send('sum', [1])), /the broker cannot be reached/)
    await own.start()
    assert.equal(await later, 2)
  })
})

// One after the other: they look at what all services have seen.
describe('a message', () => {
  test('emits the message of a group when its members are done', async t => {
    const sender = await service(t, 'grouped')
    const group = await sender.openGroup('import-7', 'summary', new FilaRecord('import 7', { expire: 3600000 }))
    t.after(() => group.close())
    for (let n = 0; n < 3; n++) await answer(sender.emit('page', new FilaRecord(n, { group: 'import-7' })))
    assert.equal((await group.wait(0)).state, 'open')
    await group.seal()
    assert.equal((await group.wait(patience)).done, 3)
    await until('the summary is seen', () => seen.some(([text]) => text === 'import 7'))
    assert.deepEqual(seen.splice(0).filter(([text]) => text === 'import 7'), [['import 7', '3']])
  })

  test('holds the throttle of a provider', async t => {
    const sender = await service(t, 'limited')
    await answer(sender.emit('limited', new FilaRecord('call', { throttle: 'provider:x', attempts: 2, backoff: 1 })))
    await until('it is handled again', () => seen.length === 2)
    const [[, , first], [, attempt, second]] = seen.splice(0)
    assert.equal(attempt, 2)
    assert.ok(second - first >= 290, `${second - first}`)
  })

  test('handles batches', async t => {
    const sender = await service(t, 'batches', { served: false })
    for (let n = 0; n < 3; n++) await answer(sender.emit('page', new FilaRecord(n, { headers: n === 1 ? { fails: 'yes' } : {}, attempts: 1 })))
    await answer(sender.emit('summary', new FilaRecord('other', { attempts: 1 })))
    await answer(sender.emit('nothing', new FilaRecord('x', { attempts: 1 })))
    const sum = answer(sender.send('sum', [1]))
    await until('it is sent', async () => await broker.info('batches', 'ready') === 6)
    await service(t, 'batches', { batch: { size: 10 } })
    await assert.rejects(sum, { message: 'a service with batches answers nothing' })
    await until('all have ended', async () => await broker.info('batches', 'acked') === 3)
    assert.deepEqual(seen.splice(0), [['page', [0, 1, 2]], [['other'], undefined]])
    await until('the others are dead', async () => await broker.info('batches.dlq', 'dead') === 3)
  })

  test('keeps the last of what has an id', async t => {
    const sender = await service(t, 'replaced', { served: false })
    const deduplication = { id: 'sync', replace: true, extend: true }
    const ids = []
    for (const n of [1, 2]) ids.push(await answer(sender.emit('seen', new FilaRecord(n, { deduplication, delay: 200 }))))
    assert.equal(ids[0], ids[1])
    await service(t, 'replaced')
    await until('it is handled', () => seen.length === 2)
    assert.deepEqual(seen.splice(0), [['first', 2], ['second', 2]])
  })
})
