// The official SDK for Node.js and sqs-consumer, with gateways that the environment names.
'use strict'

const assert = require('node:assert/strict')
const { randomUUID } = require('node:crypto')
const { once } = require('node:events')
const { describe, test } = require('node:test')
const { setTimeout: sleep } = require('node:timers/promises')
const sdk = require('@aws-sdk/client-sqs')
const { Consumer } = require('sqs-consumer')

// Requests are not repeated: each test sees what the gateway has answered first.
const sqs = new sdk.SQS({ maxAttempts: 1 })
const other = new sdk.SQS({ maxAttempts: 1, endpoint: process.env.OTHER_ENDPOINT_URL })

const patience = 120_000 * Number(process.env.TEST_PATIENCE ?? 1)

async function until (what, condition) {
  for (const end = Date.now() + patience; !(await condition()); await sleep(10)) {
    assert.ok(Date.now() < end, `not within ${patience} ms: ${what}`)
  }
}

// Creates a queue, which is deleted with the test.
async function create (t, attributes = {}, suffix = '') {
  const { QueueUrl } = await sqs.createQueue({ QueueName: `node-${randomUUID()}${suffix}`, Attributes: attributes })
  t.after(() => sqs.deleteQueue({ QueueUrl }).catch(() => {}))
  return QueueUrl
}

async function arn (QueueUrl) {
  return (await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['QueueArn'] })).Attributes.QueueArn
}

async function receive (QueueUrl, options) {
  const { Messages } = await sqs.receiveMessage({ QueueUrl, WaitTimeSeconds: 20, MessageAttributeNames: ['All'], MessageSystemAttributeNames: ['All'], ...options })
  return Messages ?? []
}

// What is left of a queue: messages that are visible, and in flight.
async function left (QueueUrl) {
  const names = ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible']
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl, AttributeNames: names })
  return names.map(name => Number(Attributes[name]))
}

describe('the SDK', { concurrency: true }, () => {
  test('creates, uses and deletes a queue', async t => {
    const QueueName = `node-${randomUUID()}`
    const { QueueUrl } = await sqs.createQueue({ QueueName, Attributes: { VisibilityTimeout: '60' }, tags: { team: 'orders' } })
    assert.equal((await sqs.getQueueUrl({ QueueName })).QueueUrl, QueueUrl)
    assert.deepEqual((await sqs.listQueues({ QueueNamePrefix: QueueName })).QueueUrls, [QueueUrl])
    await sqs.tagQueue({ QueueUrl, Tags: { more: '<1>' } })
    await sqs.untagQueue({ QueueUrl, TagKeys: ['team'] })
    assert.deepEqual((await sqs.listQueueTags({ QueueUrl })).Tags, { more: '<1>' })
    await sqs.setQueueAttributes({ QueueUrl, Attributes: { VisibilityTimeout: '70', ReceiveMessageWaitTimeSeconds: '1' } })
    assert.equal((await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ['All'] })).Attributes.VisibilityTimeout, '70')
    // The SDK verifies the digests.
    const sent = await sqs.sendMessage({
      QueueUrl,
      MessageBody: 'é 😀 <&>',
      MessageGroupId: 'tenant',
      MessageAttributes: {
        text: { DataType: 'String', StringValue: 'v' },
        number: { DataType: 'Number', StringValue: '1.5' },
        bytes: { DataType: 'Binary', BinaryValue: Uint8Array.of(0, 255) }
      }
    })
    const [m] = await receive(QueueUrl)
    assert.equal(m.Body, 'é 😀 <&>')
    assert.equal(m.MD5OfMessageAttributes, sent.MD5OfMessageAttributes)
    assert.deepEqual(m.MessageAttributes.bytes, { DataType: 'Binary', BinaryValue: Uint8Array.of(0, 255) })
    assert.equal(m.MessageAttributes.number.StringValue, '1.5')
    assert.equal(m.Attributes.MessageGroupId, 'tenant')
    assert.equal(m.Attributes.SenderId, process.env.AWS_ACCESS_KEY_ID)
    await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0 })
    const [again] = await receive(QueueUrl)
    assert.equal(again.Attributes.ApproximateReceiveCount, '2')
    await other.deleteMessage({ QueueUrl, ReceiptHandle: again.ReceiptHandle })
    assert.deepEqual(await left(QueueUrl), [0, 0])
    await sqs.sendMessage({ QueueUrl, MessageBody: 'purged' })
    await sqs.purgeQueue({ QueueUrl })
    assert.deepEqual(await left(QueueUrl), [0, 0])
    await sqs.deleteQueue({ QueueUrl })
    await assert.rejects(sqs.getQueueUrl({ QueueName }), sdk.QueueDoesNotExist)
  })

  test('sends and deletes in batches, which fail in part', async t => {
    const QueueUrl = await create(t)
    const out = await sqs.sendMessageBatch({ QueueUrl, Entries: Array.from({ length: 10 }, (_, i) => ({ Id: `${i}`, MessageBody: i === 3 ? '\u0001' : `m${i}` })) })
    assert.equal(out.Successful.length, 9)
    assert.deepEqual(out.Failed.map(f => [f.Id, f.Code, f.SenderFault]), [['3', 'InvalidMessageContents', true]])
    const messages = await receive(QueueUrl, { MaxNumberOfMessages: 10 })
    assert.equal(messages.length, 9)
    const entries = messages.map((m, i) => ({ Id: `${i}`, ReceiptHandle: m.ReceiptHandle }))
    await sqs.changeMessageVisibilityBatch({ QueueUrl, Entries: entries.map(e => ({ ...e, VisibilityTimeout: 100 })) })
    const done = await sqs.deleteMessageBatch({ QueueUrl, Entries: [...entries, { Id: 'none', ReceiptHandle: '%' }] })
    assert.equal(done.Successful.length, 9)
    assert.deepEqual(done.Failed.map(f => f.Code), ['ReceiptHandleIsInvalid'])
  })

  test('wakes a receive that waits at another gateway', async t => {
    const QueueUrl = await create(t)
    const waiting = other.receiveMessage({ QueueUrl, WaitTimeSeconds: 20 })
    await sqs.sendMessage({ QueueUrl, MessageBody: 'now' })
    assert.equal((await waiting).Messages[0].Body, 'now')
  })

  test('uses a FIFO queue', async t => {
    const QueueUrl = await create(t, { FifoQueue: 'true', ContentBasedDeduplication: 'true' }, '.fifo')
    for (const [MessageBody, MessageGroupId] of [['1', 'a'], ['2', 'a'], ['1', 'b'], ['3', 'b']]) {
      await sqs.sendMessage({ QueueUrl, MessageBody, MessageGroupId })
    }
    const bodies = []
    while (bodies.length < 3) {
      for (const m of await receive(QueueUrl, { MaxNumberOfMessages: 10, ReceiveRequestAttemptId: randomUUID() })) {
        bodies.push(m.Attributes.MessageGroupId + m.Body)
        await sqs.deleteMessage({ QueueUrl, ReceiptHandle: m.ReceiptHandle })
      }
    }
    assert.deepEqual(bodies.toSorted(), ['a1', 'a2', 'b3'])
    assert.ok(bodies.indexOf('a1') < bodies.indexOf('a2'))
  })

  test('moves dead letters back', async t => {
    const dead = await create(t, {}, '-dead')
    const SourceArn = await arn(dead)
    const QueueUrl = await create(t, { RedrivePolicy: JSON.stringify({ deadLetterTargetArn: SourceArn, maxReceiveCount: 1 }) })
    assert.deepEqual((await sqs.listDeadLetterSourceQueues({ QueueUrl: dead })).queueUrls, [QueueUrl])
    await sqs.sendMessage({ QueueUrl, MessageBody: 'poison' })
    const [m] = await receive(QueueUrl)
    await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0 })
    assert.deepEqual(await left(dead), [1, 0])
    const { TaskHandle } = await sqs.startMessageMoveTask({ SourceArn })
    assert.equal((await receive(QueueUrl))[0].Body, 'poison')
    const { Results } = await sqs.listMessageMoveTasks({ SourceArn })
    assert.equal(Results[0].Status, 'COMPLETED')
    assert.equal(Results[0].ApproximateNumberOfMessagesMoved, 1)
    await assert.rejects(sqs.cancelMessageMoveTask({ TaskHandle }), sdk.ResourceNotFoundException)
  })

  test('pages through queues', async t => {
    const QueueNamePrefix = `node-${randomUUID()}`
    for (const suffix of ['1', '2', '3']) {
      const { QueueUrl } = await sqs.createQueue({ QueueName: QueueNamePrefix + suffix })
      t.after(() => sqs.deleteQueue({ QueueUrl }))
    }
    const pages = []
    for await (const page of sdk.paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix })) pages.push(page.QueueUrls.length)
    assert.deepEqual(pages, [2, 1])
  })

  test('knows errors by their classes', async t => {
    const QueueUrl = await create(t)
    const entry = { Id: 'a', MessageBody: 'x' }
    for (const [expected, action, input] of [
      [sdk.QueueDoesNotExist, 'sendMessage', { QueueUrl: `${QueueUrl}-none`, MessageBody: 'x' }],
      [sdk.QueueNameExists, 'createQueue', { QueueName: QueueUrl.split('/').pop(), Attributes: { VisibilityTimeout: '9' } }],
      [sdk.EmptyBatchRequest, 'sendMessageBatch', { QueueUrl, Entries: [] }],
      [sdk.BatchEntryIdsNotDistinct, 'sendMessageBatch', { QueueUrl, Entries: [entry, entry] }],
      [sdk.TooManyEntriesInBatchRequest, 'sendMessageBatch', { QueueUrl, Entries: Array.from({ length: 11 }, (_, i) => ({ ...entry, Id: `${i}` })) }],
      [sdk.InvalidBatchEntryId, 'sendMessageBatch', { QueueUrl, Entries: [{ ...entry, Id: 'a b' }] }],
      [sdk.InvalidMessageContents, 'sendMessage', { QueueUrl, MessageBody: '\u0001' }],
      [sdk.InvalidAttributeName, 'getQueueAttributes', { QueueUrl, AttributeNames: ['Colour'] }],
      [sdk.InvalidAttributeValue, 'setQueueAttributes', { QueueUrl, Attributes: { DelaySeconds: '901' } }],
      [sdk.ReceiptHandleIsInvalid, 'deleteMessage', { QueueUrl, ReceiptHandle: '%' }],
      [sdk.UnsupportedOperation, 'addPermission', { QueueUrl, Label: 'l', AWSAccountIds: ['1'], Actions: ['*'] }]
    ]) await assert.rejects(sqs[action](input), expected, action)
    const stranger = new sdk.SQS({ maxAttempts: 1, credentials: { accessKeyId: process.env.AWS_ACCESS_KEY_ID, secretAccessKey: 'wrong' } })
    await assert.rejects(stranger.listQueues({}), { name: 'SignatureDoesNotMatch' })
  })
})

describe('sqs-consumer', { concurrency: true }, () => {
  // Starts a consumer, which is stopped with the test.
  function consume (t, queueUrl, options) {
    const consumer = Consumer.create({ queueUrl, sqs, waitTimeSeconds: 1, ...options })
    const errors = { error: [], processing_error: [], timeout_error: [] }
    for (const name in errors) consumer.on(name, e => errors[name].push(e))
    t.after(() => consumer.stop({ abort: true }))
    consumer.start()
    return { consumer, errors }
  }

  test('handles messages and deletes them', async t => {
    const QueueUrl = await create(t)
    for (let i = 0; i < 25; i++) await sqs.sendMessage({ QueueUrl, MessageBody: `${i}`, MessageAttributes: { n: { DataType: 'Number', StringValue: `${i}` } } })
    const seen = new Set()
    const { consumer, errors } = consume(t, QueueUrl, {
      batchSize: 10,
      messageAttributeNames: ['All'],
      handleMessage: async m => { assert.equal(m.MessageAttributes.n.StringValue, m.Body); seen.add(m.Body); return m }
    })
    await once(consumer, 'empty')
    assert.equal(seen.size, 25)
    assert.deepEqual(await left(QueueUrl), [0, 0])
    assert.deepEqual(errors, { error: [], processing_error: [], timeout_error: [] })
    const stopped = once(consumer, 'stopped')
    consumer.stop()
    await stopped
  })

  test('deletes of a batch what its handler returns', async t => {
    const QueueUrl = await create(t, { VisibilityTimeout: '600' })
    await sqs.sendMessageBatch({ QueueUrl, Entries: Array.from({ length: 10 }, (_, i) => ({ Id: `${i}`, MessageBody: `${i}` })) })
    const { errors } = consume(t, QueueUrl, { batchSize: 10, handleMessageBatch: async list => list.filter(m => m.Body !== '7') })
    await until('all but one are deleted', async () => (await left(QueueUrl)).join() === '0,1')
    assert.deepEqual(errors.error, [])
  })

  test('makes what has failed visible at once, and says why', async t => {
    const QueueUrl = await create(t, { VisibilityTimeout: '600' })
    await sqs.sendMessage({ QueueUrl, MessageBody: 'a' })
    let attempts = 0
    const { errors } = consume(t, QueueUrl, {
      terminateVisibilityTimeout: true,
      handleMessage: async m => { if (++attempts < 3) throw new Error('not yet'); return m }
    })
    await until('the third attempt succeeds', async () => attempts === 3 && (await left(QueueUrl)).join() === '0,0')
    assert.deepEqual(errors.processing_error.map(e => e.message), Array(2).fill('Unexpected message handler failure: not yet'))
    assert.deepEqual(errors.error, [])
  })

  test('extends the visibility of a message while its handler works', async t => {
    const QueueUrl = await create(t)
    await sqs.sendMessage({ QueueUrl, MessageBody: 'long' })
    const counting = new sdk.SQS({ maxAttempts: 1 })
    let extended = 0
    counting.middlewareStack.add((next, context) => async args => {
      const answer = await next(args)
      if (context.commandName === 'ChangeMessageVisibilityCommand') extended++
      return answer
    }, { step: 'initialize' })
    const { errors } = consume(t, QueueUrl, {
      sqs: counting,
      visibilityTimeout: 600,
      heartbeatInterval: 1,
      handleMessage: async m => { await until('it is extended twice', () => extended >= 2); return m }
    })
    await until('it is handled', async () => (await left(QueueUrl)).join() === '0,0')
    assert.deepEqual(errors.error, [])
  })

  test('says that a handler takes too long', async t => {
    const QueueUrl = await create(t)
    await sqs.sendMessage({ QueueUrl, MessageBody: 'hangs' })
    const { consumer } = consume(t, QueueUrl, { handleMessageTimeout: 50, handleMessage: () => new Promise(() => {}) })
    const [, message] = await once(consumer, 'timeout_error')
    assert.equal(message.Body, 'hangs')
  })

  test('says that its queue does not exist, and pauses when its secret is wrong', async t => {
    const QueueUrl = await create(t)
    const none = consume(t, `${QueueUrl}-none`, { handleMessage: async m => m })
    const [gone] = await once(none.consumer, 'error')
    assert.match(gone.message, /^SQS receive message failed: The specified queue does not exist/)
    assert.equal(gone.code, 'QueueDoesNotExist')
    const stranger = new sdk.SQSClient({ maxAttempts: 1, credentials: { accessKeyId: 'AKIANONE', secretAccessKey: 'wrong' } })
    const strange = consume(t, QueueUrl, { sqs: stranger, authenticationErrorTimeout: 600_000, handleMessage: async m => m })
    const [refused] = await once(strange.consumer, 'error')
    assert.deepEqual([refused.code, refused.statusCode], ['InvalidClientTokenId', 403])
    await sleep(300)
    assert.equal(strange.errors.error.length, 1)
  })
})
