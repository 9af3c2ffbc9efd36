// Puts BullMQ under the load of bench-peers: sessions that each add a batch of jobs in
// bulk, fetch as many and complete them. It is told how by its arguments, prints
// "begin" and "end" around what counts, and then what it has counted.
import { Queue, Worker } from 'bullmq';

const [port, name, sessions, batch, payload, warmup, millis] = process.argv.slice(2).map((v, i) => (i === 1 ? v : Number(v)));
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const data = { body: Buffer.from(crypto.getRandomValues(new Uint8Array(payload * 3 / 4))).toString('base64') };
const jobs = Array.from({ length: batch }, () => ({ name: 'bench', data, opts: { removeOnComplete: true } }));

let done = 0;
let ended = false;

async function fetchOne(worker, token) {
  for (;;) {
    const job = await worker.getNextJob(token, { block: false });
    if (job) return job;
  }
}

async function connect() {
  const queue = new Queue(name, { connection });
  const worker = new Worker(name, null, { connection, autorun: false, lockDuration: 600000, skipStalledCheck: true });
  await queue.waitUntilReady();
  await worker.waitUntilReady();
  return { queue, worker };
}

async function work({ queue, worker }, i) {
  const token = `session-${i}`;
  while (!ended) {
    await queue.addBulk(jobs);
    const taken = await Promise.all(jobs.map(() => fetchOne(worker, token)));
    await Promise.all(taken.map((job) => job.moveToCompleted('', token, false)));
    done += batch;
  }
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const connected = await Promise.all(Array.from({ length: sessions }, connect));
const all = Promise.all(connected.map(work));
all.catch((err) => { console.error(err); process.exit(1); });
await pause(warmup);
const before = done;
const begun = performance.now();
console.log('begin');
await pause(millis);
const counted = done - before;
const seconds = (performance.now() - begun) / 1000;
console.log('end');
ended = true;
await Promise.race([all, pause(5000)]);
console.log(JSON.stringify({ messages: counted, seconds, all: done - before }));
const queue = new Queue(name, { connection });
await queue.obliterate({ force: true });
process.exit(0);
