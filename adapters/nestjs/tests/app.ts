// app.js URL QUEUE: a microservice, until SIGTERM. Its source is what the types are tried with.
import 'reflect-metadata'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Controller, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Ctx, EventPattern, MessagePattern, Payload, RpcException } from '@nestjs/microservices'
import { FilaClient, FilaContext, FilaRecord, FilaTransport } from 'fila-nestjs'
import { from, type Observable } from 'rxjs'

export const seen: unknown[] = []
export const keys: string[] = [] // of messages with the pattern sum

@Controller()
class AppController {
  @MessagePattern('sum')
  sum(@Payload() numbers: number[], @Ctx() context: FilaContext): number {
    keys.push(context.getJob().key)
    return numbers.reduce((a, b) => a + b, 0)
  }

  @MessagePattern({ cmd: 'last' })
  last(@Payload() values: string[]): Observable<string> {
    return from(values)
  }

  @MessagePattern('context')
  context(@Ctx() context: FilaContext): object {
    const { key, headers, attempt } = context.getJob()
    return { pattern: context.getPattern(), key, headers, attempt }
  }

  @MessagePattern('refuse')
  refuse(@Payload() answer: object | string): never {
    throw new RpcException(answer)
  }

  @MessagePattern('break')
  break(): never {
    throw new TypeError('not a number')
  }

  @MessagePattern('retry')
  retry(@Ctx() context: FilaContext): string {
    const { attempt } = context.getJob()
    if (attempt < 3) throw new RpcException({ message: 'busy', delay: 10 })
    return `at attempt ${attempt}`
  }

  @EventPattern('seen')
  first(@Payload() value: unknown): void {
    seen.push(['first', value])
  }

  @EventPattern('seen')
  async second(@Payload() value: unknown): Promise<void> {
    await sleep(10)
    seen.push(['second', value])
  }

  @EventPattern('fail')
  fail(@Payload() text: string, @Ctx() context: FilaContext): never {
    seen.push([text, context.getJob().attempt])
    throw new RpcException(text)
  }

  @EventPattern('limited')
  limited(@Payload() text: string, @Ctx() context: FilaContext): void {
    seen.push([text, context.getJob().attempt, Date.now()])
    if (context.getJob().attempt === 1) throw new RpcException({ message: 'busy', throttle: 'provider:x', hold: 300 })
  }

  @EventPattern('page')
  async page(@Payload() pages: number[] | number, @Ctx() context: FilaContext): Promise<void> {
    await context.updateProgress({ of: pages })
    for (const job of context.getBatch()) if (job.headers.fails) job.setAsFailed(new Error('this one'))
    seen.push(['page', pages])
  }

  @EventPattern('summary')
  summary(@Payload() text: string, @Ctx() context: FilaContext): void {
    seen.push([text, context.getJob().headers['fila-group-done']])
  }

  @EventPattern('sleep')
  async sleep(@Payload() times: number[], @Ctx() context: FilaContext): Promise<void> {
    const ms = times[context.getJob().attempt - 1]
    console.log('begun', context.getJob().attempt)
    await (ms === undefined ? once(process, 'SIGUSR2') : sleep(ms))
    console.log('done')
  }
}

@Module({ controllers: [AppController] })
class AppModule {}

export async function serve(connection: string, queue: string, batch?: { size: number }, Transport = FilaTransport) {
  const strategy = new Transport({ connection, queue, batch, lockDuration: 4500, blockFor: 200, settings: { maxattempts: 3, backoff: 10 } })
  const app = await NestFactory.createMicroservice(AppModule, { strategy, logger: false })
  app.enableShutdownHooks()
  await app.listen()
  return app
}

export function client(connection: string, queue: string): FilaClient {
  return new FilaClient({ connection, queue, settings: { maxattempts: 3, backoff: 10 } })
}

export function record<T>(data: T, key: string): FilaRecord<T> {
  return new FilaRecord(data, { key, throttle: ['provider:x'], headers: { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' } })
}

// A service that says when it takes no more messages.
class SayingTransport extends FilaTransport {
  async close(): Promise<void> {
    const closed = super.close()
    console.log('closing')
    await closed
  }
}

if (require.main === module) void serve(process.argv[2], process.argv[3], undefined, SayingTransport)
