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
        $this->worker('async');
        $this->worker('async');
        $this->wait('all is done', fn () => self::NOISY + self::QUIET === \count($this->noted()));
        $last = max(array_keys($this->noted(), 'quiet')) + 1;
        $this->assertLessThanOrEqual(3 * self::QUIET, $last); // 2 x QUIET is fair; two workers work at a time
    }

    public function testAThrottledTenantHoldsBackNoOther(): void
    {
        $this->broker->call('FILA.THROTTLE', 'SET', 'slow', 'CONCURRENCY', 1);
        for ($n = 0; $n < 6; ++$n) {
            $this->send(new Work('acme', 'slow'), new FilaStamp(key: 'acme', throttle: ['slow']));
        }
        for ($n = 0; $n < 3; ++$n) {
            $this->send(new Work('globex', 'slow'), new FilaStamp(key: 'globex'));
        }
        for ($n = 0; $n < 3; ++$n) {
            $this->worker('async');
        }
        $this->wait('all is done', fn () => 9 === \count($this->noted('/ended/')));
        $running = $most = 0;
        foreach ($this->noted('/acme/') as $line) {
            $most = max($most, $running += str_ends_with($line, 'began') ? 1 : -1);
        }
        $this->assertSame(1, $most);
        $lines = $this->noted();
        $this->assertLessThan(max(array_keys($lines, 'acme ended')), max(array_keys($lines, 'globex ended')));
    }
}
