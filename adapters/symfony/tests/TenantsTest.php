<?php

namespace Tests;

use App\Work;
use Fila\Messenger\FilaStamp;

/** What tenants that share workers wait for. */
final class TenantsTest extends Harness
{
    private const NOISY = 100;
    private const QUIET = 5;

    protected function broker(): Broker
    {
        return new Broker('', '--storage.sync', 'never'); // it is about order, and nothing is killed
    }

    public function testANoisyTenantDoesNotDelayAQuietOne(): void
    {
        foreach (['noisy' => self::NOISY, 'quiet' => self::QUIET] as $tenant => $count) {
            for ($n = 0; $n < $count; ++$n) {
                $this->send(new Work($tenant, 'tenant'), new FilaStamp(key: $tenant));
            }
        }
        $this->worker('async'); // one, so that no message overtakes another
        $this->wait('all is done', fn () => self::NOISY + self::QUIET === \count($this->noted()));
        $last = max(array_keys($this->noted(), 'quiet')) + 1;
        $this->assertLessThanOrEqual(3 * self::QUIET, $last); // 2 x QUIET is fair
    }

    public function testAThrottledTenantHoldsBackNoOther(): void
    {
        $this->broker->call('FILA.THROTTLE', 'SET', 'slow', 'CONCURRENCY', 1);
        $file = $this->broker->directory.'/end';
        for ($n = 0; $n < 6; ++$n) {
            $this->send(new Work('acme', 'held', $file), new FilaStamp(key: 'acme', throttle: ['slow']));
        }
        for ($n = 0; $n < 3; ++$n) {
            $this->send(new Work('globex'), new FilaStamp(key: 'globex'));
        }
        for ($n = 0; $n < 3; ++$n) {
            $this->worker('async');
        }
        $this->wait('one has begun, the others do not wait for it', fn () => $this->noted('/acme began/') && 3 === \count($this->noted('/globex/')));
        $this->assertSame([], $this->noted('/acme ended/'));
        touch($file);
        $this->wait('all is done', fn () => 6 === \count($this->noted('/acme ended/')));
        $running = $most = 0;
        foreach ($this->noted('/acme/') as $line) {
            $most = max($most, $running += str_ends_with($line, 'began') ? 1 : -1);
        }
        $this->assertSame(1, $most);
    }
}
