<?php

namespace Tests;

use App\Json;
use App\Work;
use Fila\Messenger\FilaStamp;
use Fila\Messenger\FilaTransportFactory;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\TransportException;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;

/** What messages name, looked at in the broker. No worker runs. */
final class OptionsTest extends Harness
{
    public function testAMessageAsItIs(): void
    {
        $sent = $this->send(new Work('x'));
        [$m] = $this->broker->messages('async');
        $this->assertSame(['default', [], 4, 'ready', Work::class], [$m['key'], $m['throttle'], $m['priority'], $m['status'], $m['headers']['type']]);
        $this->assertSame($m['id'], $sent->last(TransportMessageIdStamp::class)->getId());
        $this->assertSame(3, $this->broker->info('async')['max_attempts']);
    }

    public function testStamps(): void
    {
        $this->send(new Json('x'), new FilaStamp(key: 'acme', throttle: ['a', 'b'], priority: 7, weight: 2, cost: 3, ttl: 60000, dedup: 'once'), new DelayStamp(30000));
        $this->send(new Json('x'), new FilaStamp(key: 'acme', dedup: 'once'));
        $messages = $this->broker->messages('json');
        $this->assertCount(1, $messages);
        [$m] = $messages;
        $this->assertSame(['acme', ['a', 'b'], 7, 2, 3, 'delayed'], [$m['key'], $m['throttle'], $m['priority'], $m['weight'], $m['cost'], $m['status']]);
        $this->assertSame('{"line":"x","kind":"note","file":""}', $m['payload']);
    }

    public function testTheConsoleCreatesTheQueues(): void
    {
        $this->assertSame(0, $this->console('messenger:setup-transports')->end());
        $queues = array_filter($this->broker->call('FILA.QUEUE', 'LIST'), fn ($q) => !str_ends_with($q, '.dlq'));
        $this->assertEqualsCanonicalizing(['async', 'json', 'alone', 'failed', 'failed_json'], $queues);
    }

    public function testABrokerThatCannotBeReachedIsAnErrorOnce(): void
    {
        $this->send(new Work('before'));
        $this->broker->kill();
        try {
            $this->send(new Work('lost'));
            $this->fail('it was sent');
        } catch (\Fila\Messenger\UnreachableException $e) {
            $this->assertStringStartsWith('Fila at 127.0.0.1:', $e->getMessage());
        }
        $this->broker->start();
        $this->send(new Work('after'));
        $this->assertSame(2, $this->broker->info('async')['ready']);
    }

    public function testTlsAndAPassword(): void
    {
        $dir = $this->broker->directory;
        exec("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout $dir/key -out $dir/cert 2>&1", $output, $status);
        $this->assertSame(0, $status, implode("\n", $output));
        $address = '127.0.0.1:'.Broker::reserve();
        $guarded = new Broker('secret', '--tls.listen_addr', $address, '--tls.cert_file', "$dir/cert", '--tls.key_file', "$dir/key",
            '--tls.auth_clients', 'no', '--auth.password', 'secret');
        $send = fn (string $password, array $ssl) => (new FilaTransportFactory())->createTransport("filas://:$password@$address/q", ['ssl' => $ssl], new PhpSerializer())
            ->send(new Envelope(new Work('x')));
        try {
            $send('secret', ['cafile' => "$dir/cert"]);
            $this->assertCount(1, $guarded->messages('q'));
            foreach ([['secret', []], ['wrong', ['cafile' => "$dir/cert"]]] as [$password, $ssl]) {
                try {
                    $send($password, $ssl);
                    $this->fail('it was sent');
                } catch (TransportException) {
                    $this->assertCount(1, $guarded->messages('q'));
                }
            }
        } finally {
            $guarded->kill();
        }
    }
}
