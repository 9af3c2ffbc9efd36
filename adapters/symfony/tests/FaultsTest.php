<?php

namespace Tests;

use App\Alone;
use App\Work;
use Symfony\Component\Messenger\Stamp\DelayStamp;

/** What is lost, and what comes again, when a worker or the broker ends. */
final class FaultsTest extends Harness
{
    public function testAKilledWorker(): void
    {
        $file = $this->broker->directory.'/end';
        $this->send(new Work('job', 'held', $file));
        $first = $this->worker('async');
        $this->wait('it has begun', fn () => $this->noted());
        $first->kill();
        $this->worker('async');
        $this->wait('it has begun again', fn () => 2 === \count($this->noted()));
        touch($file);
        $this->wait('it ends', fn () => 3 === \count($this->noted()));
        $this->assertSame(['job began', 'job began', 'job ended'], $this->noted());
    }

    public function testAKilledBroker(): void
    {
        $file = $this->broker->directory.'/end';
        $this->send(new Alone('job', 'held', $file));
        $this->worker('alone');
        $this->wait('it has begun', fn () => $this->noted());
        usleep(100_000); // more than the broker's delay to write a lease, which it has written before what is stored next
        for ($n = 0; $n < 10; ++$n) {
            $this->send(new Alone((string) $n));
        }
        $this->send(new Alone('later'), new DelayStamp(1000));
        $this->broker->kill();
        touch($file);
        $this->wait('it ends without a broker', fn () => $this->noted('/job ended/'));
        $this->broker->start();
        $this->wait('all is done', fn () => $this->noted('/later/') && $this->noted('/9/'));
        $this->assertSame(array_map('strval', range(0, 9)), $this->noted('/^\d/'));
        $this->assertCount(1, $this->noted('/job ended/'), 'its ack was sent again');
        $this->wait('nothing is left', fn () => [] === $this->broker->messages('alone'));
    }

    public function testAWorkerThatStopsInOrder(): void
    {
        $file = $this->broker->directory.'/end';
        $this->send(new Work('0', 'held', $file));
        $this->send(new Work('1', 'held', $file));
        $worker = $this->worker('async');
        $this->wait('one has begun', fn () => $this->noted());
        $worker->signal(\SIGTERM);
        usleep(500_000);
        touch($file);
        $this->assertSame(0, $worker->end());
        $this->assertSame(['0 began', '0 ended'], $this->noted());
        [$left] = $this->broker->messages('async');
        $this->assertSame(['ready', 1], [$left['status'], $left['attempt']]);
    }
}
