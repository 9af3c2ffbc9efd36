<?php

namespace Tests;

use App\Alone;
use App\Json;
use App\Work;
use Fila\Messenger\FilaStamp;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;

/** Messages from their start to their end. */
final class LifeTest extends Harness
{
    public function testHandledDelayedAndRetried(): void
    {
        $keepalive = interface_exists(KeepaliveReceiverInterface::class) ? ['--keepalive=1'] : [];
        $began = microtime(true);
        $this->send(new Work('later'), new DelayStamp(1000));
        $this->send(new Work('urgent'), new FilaStamp(priority: 9));
        $this->send(new Work('again', 'once', $this->broker->directory.'/failed'));
        $this->worker('async', ...$keepalive);
        $this->wait('the retry succeeds', fn () => $this->noted('/again ended/'));
        $this->assertCount(2, $this->noted('/again began/'));
        $this->wait('a message is delayed as long as it says', fn () => $this->noted('/later/'));
        $this->assertGreaterThanOrEqual(1, microtime(true) - $began);
        $this->assertSame('urgent', $this->noted()[0]);
        $this->wait('nothing is left', fn () => [0, 0, 0] === [($i = $this->broker->info('async'))['ready'], $i['leased'], $i['delayed']]);
        $this->assertSame([], $this->broker->messages('async.dlq'));

        $this->send(new Work('long', 'held', $held = $this->broker->directory.'/held'));
        $this->wait('it has begun', fn () => $this->noted('/long began/'));
        $this->waitForExtension('async');
        touch($held);
        $this->wait('it ends', fn () => $this->noted('/long ended/'));
        $this->assertCount(1, $this->noted('/long began/'));
    }

    public function testWhatAHandlerSendsHasTheKeyOfItsMessage(): void
    {
        foreach (['acme', 'globex'] as $key) {
            $this->send(new Work($key, 'parent'), new FilaStamp(key: $key));
        }
        $this->send(new Work('default', 'parent'));
        $this->worker('async');
        $sent = $this->wait('all are sent', fn () => 3 === \count($m = $this->broker->messages('json')) ? $m : null);
        foreach ($sent as $m) {
            $this->assertSame($m['key'], json_decode($m['payload'], true)['line']);
        }
        $this->send(new Json('by no handler'));
        $this->assertSame('default', $this->broker->messages('json')[3]['key']);
    }

    public function testTheFailureTransport(): void
    {
        $file = $this->broker->directory.'/end';
        $this->send(new Work('php', 'failing', $file), new FilaStamp(key: 'acme', throttle: ['x']));
        $this->send(new Json('json', 'failing', $file), new FilaStamp(key: 'acme', throttle: ['x'], dedup: 'once'));
        $this->worker('async', 'json');
        foreach (['failed' => 'php', 'failed_json' => 'json'] as $transport => $line) {
            $failed = $this->wait("$line has failed", fn () => $this->broker->messages($transport))[0];
            $this->assertCount(3, $this->noted("/$line began/"), implode("\n", $this->noted()));
            $this->assertSame(['acme', ['x']], [$failed['key'], $failed['throttle']]);
            $show = $this->console('messenger:failed:show', '--transport', $transport, '-vv', $failed['id']);
            $this->assertSame(0, $show->end());
            $this->assertStringContainsString("no such order: $line", $show->output());
        }
        $this->assertArrayHasKey('fila-large-headers', $failed['headers'], 'the trace of an error is too large for a header');
        touch($file);
        $this->assertSame(0, $this->console('messenger:failed:retry', '--transport', 'failed', '--force', $this->broker->messages('failed')[0]['id'])->end());
        $this->assertSame(0, $this->console('messenger:consume', '--limit', '1', 'failed_json')->end());
        $this->assertCount(1, $this->noted('/php ended/'));
        $this->assertCount(1, $this->noted('/json ended/'));
        foreach (['async', 'json', 'failed', 'failed_json', 'async.dlq', 'json.dlq', 'failed.dlq'] as $queue) {
            $this->assertSame([], $this->broker->messages($queue), $queue);
        }
    }

    public function testWithoutAFailureTransportItIsTheDeadLetterQueue(): void
    {
        $file = $this->broker->directory.'/end';
        $this->send(new Alone('alone', 'failing', $file), new FilaStamp(key: 'acme'));
        $this->broker->call('FILA.ENQUEUE', 'alone', 'this is no envelope');
        $this->worker('alone');
        $dead = $this->wait('the message is dead', fn () => $this->broker->messages('alone.dlq'))[0];
        $this->assertSame(['acme', 'DomainException: no such order: alone'], [$dead['key'], $dead['error']]);
        $this->wait('what is no envelope is dead', fn () => 2 === \count($this->broker->messages('alone.dlq')));
        touch($file);
        $this->worker('alone');
        $this->broker->call('FILA.REDRIVE', 'alone.dlq', 'KEY', 'acme');
        $this->wait('an operator has it run again', fn () => $this->noted('/alone ended/'));
    }
}
