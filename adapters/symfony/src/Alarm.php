<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Exception\TransportException;

/**
 * Extends leases while messages are handled, by SIGALRM at a third of their time; for Symfony before 7.2.
 *
 * The alarm is on only while there are leases, and has a connection of its own: a signal may come between
 * any two statements of a handler.
 *
 * @internal
 */
final class Alarm
{
    private array $receipts = [];
    private Connection $connection;

    public function __construct(private Settings $settings)
    {
        $this->connection = new Connection($settings);
    }

    public function add(string $receipt): void
    {
        if (!$this->settings->keepalive) {
            return;
        }
        $this->receipts[$receipt] = true;
        pcntl_async_signals(true);
        pcntl_signal(\SIGALRM, function () { $this->extend(); });
        $this->set();
    }

    public function remove(string $receipt): void
    {
        unset($this->receipts[$receipt]);
        if ($this->settings->keepalive && !$this->receipts) {
            pcntl_alarm(0);
        }
    }

    private function set(): void
    {
        pcntl_alarm(max(1, intdiv($this->settings->visibility, 3000)));
    }

    private function extend(): void
    {
        foreach (array_keys($this->receipts) as $receipt) {
            try {
                $this->connection->once('FILA.EXTEND', $this->settings->queue, $receipt, $this->settings->visibility);
            } catch (TransportException $e) {
                if (!$e instanceof UnreachableException) {
                    unset($this->receipts[$receipt]); // lost: another worker has the message
                }
            }
        }
        if ($this->receipts) {
            $this->set();
        }
    }
}
