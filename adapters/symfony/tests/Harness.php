<?php

namespace Tests;

use App\Kernel;
use PHPUnit\Framework\TestCase;
use Symfony\Component\Messenger\Envelope;

/**
 * A broker for each test, the application on it, and notes of what its handlers did.
 */
abstract class Harness extends TestCase
{
    protected Broker $broker;
    private string $notes;
    private Kernel $kernel;
    private array $workers = [];

    protected function setUp(): void
    {
        $this->broker = $this->broker();
        $this->notes = $this->broker->directory.'/notes';
        touch($this->notes);
        $_ENV['FILA_URL'] = $this->broker->url;
        $this->kernel = new Kernel('prod', false);
        $this->kernel->boot();
    }

    protected function tearDown(): void
    {
        foreach ($this->workers as $worker) {
            $worker->kill();
        }
        $this->broker->kill();
        exec('rm -rf '.escapeshellarg($this->broker->directory));
    }

    protected function send(object $message, object ...$stamps): Envelope
    {
        return $this->kernel->getContainer()->get('bus')->dispatch($message, $stamps);
    }

    protected function broker(): Broker
    {
        return new Broker();
    }

    /** A worker of Messenger, from the console. */
    protected function worker(string ...$arguments): Process
    {
        return $this->workers[] = $this->console('messenger:consume', '--sleep', '0.02', ...$arguments);
    }

    protected function console(string ...$arguments): Process
    {
        return Process::console(['FILA_URL' => $this->broker->url, 'NOTES' => $this->notes], ...$arguments);
    }

    protected function noted(string $pattern = '//'): array
    {
        return array_values(preg_grep($pattern, file($this->notes, \FILE_IGNORE_NEW_LINES)));
    }

    /** Waits until the lease of the one message of a queue that is leased has been extended once more. */
    protected function waitForExtension(string $queue): void
    {
        $until = fn () => max([0, ...array_column($this->broker->messages($queue), 'lease_until')]);
        $before = $this->wait('a message is leased', $until);
        $this->wait('its lease is extended', fn () => $until() > $before);
    }

    protected function wait(string $what, \Closure $condition): mixed
    {
        try {
            return Process::wait($what, $condition);
        } catch (\RuntimeException $e) {
            $this->fail(implode("\n", [$e->getMessage(), ...array_map(fn ($w) => $w->output(), $this->workers)]));
        }
    }
}
