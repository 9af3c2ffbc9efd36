<?php
// php worker.php: does jobs until SIGTERM or Ctrl-C, with phpredis.

require __DIR__ . '/fila.php';

const BLOCK_MS = 2000; // how long it may take to see that it is to stop

$queue = getenv('FILA_QUEUE') ?: 'jobs';
$leaseMs = getenv('FILA_LEASE_MS') ?: '30000';

// PHP has no thread that could extend the lease: the work says that it goes on.
function work(string $job, callable $keep): void
{
    [$verb, $rest] = explode(' ', $job, 2);
    switch ($verb) {
        case 'say':
            echo $rest, "\n";
            break;
        case 'sleep':
            for ($end = microtime(true) + (float) $rest; ($left = $end - microtime(true)) > 0; $keep()) {
                usleep((int) (min($left, 0.1) * 1e6));
            }
            break;
        default:
            throw new Exception($rest);
    }
}

// Does the job of a leased message, and says what became of it.
function handle(Redis $fila, string $queue, string $leaseMs, string $receipt, string $job): void
{
    $extended = microtime(true);
    $keep = function () use (&$extended, $fila, $queue, $receipt, $leaseMs) {
        if (microtime(true) - $extended > $leaseMs / 3000) {
            fila($fila, 'FILA.EXTEND', $queue, $receipt, $leaseMs);
            $extended = microtime(true);
        }
    };
    try {
        work($job, $keep);
    } catch (RedisException $e) {
        throw $e;
    } catch (Exception $e) {
        fila($fila, 'FILA.NACK', $queue, $receipt, 'ERROR', $e->getMessage());
        return;
    }
    fila($fila, 'FILA.ACK', $queue, $receipt);
}

$stopping = false;
pcntl_async_signals(true);
foreach ([SIGTERM, SIGINT] as $signal) {
    pcntl_signal($signal, function () use (&$stopping) { $stopping = true; }, true);
}
$fila = null;
while (!$stopping) {
    try {
        $fila ??= connect(BLOCK_MS / 1000 + 5);
        foreach (fila($fila, 'FILA.LEASE', $queue, 'BLOCK', (string) BLOCK_MS, 'VISIBILITY', $leaseMs) as [$receipt, $job]) {
            handle($fila, $queue, $leaseMs, $receipt, $job);
        }
    } catch (RedisException $e) {
        $fila = null;
        if (!$stopping) {
            fwrite(STDERR, "the broker is away: {$e->getMessage()}\n");
            sleep(1);
        }
    } catch (FilaError $e) {
        if (!str_starts_with($e->getMessage(), 'NOQUEUE')) {
            throw $e;
        }
        fwrite(STDERR, "the queue does not exist yet: {$e->getMessage()}\n");
        sleep(1);
    }
}
