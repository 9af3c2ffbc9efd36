<?php

namespace App;

use Symfony\Component\Messenger\MessageBusInterface;

/**
 * Notes in a file, which outlives processes, what it does.
 */
final class Handler
{
    public function __construct(private MessageBusInterface $bus)
    {
    }

    public function work(Message $work): void
    {
        switch ($work->kind) {
            case 'note':
                $this->note($work->line);
                break;
            case 'tenant': // a little work
                usleep(5000);
                $this->note($work->line);
                break;
            case 'parent': // sends another one
                $this->bus->dispatch(new Json($work->line));
                break;
            case 'held': // until a file exists
                $this->note("$work->line began");
                while (!file_exists($work->file)) {
                    usleep(20000);
                    clearstatcache();
                }
                $this->note("$work->line ended");
                break;
            case 'once': // fails, and does not when the file exists that it makes
                $this->note("$work->line began");
                if (!file_exists($work->file)) {
                    touch($work->file);
                    $this->fail("no such order: $work->line", 100);
                }
                $this->note("$work->line ended");
                break;
            default: // fails, until a file exists
                $this->note("$work->line began");
                if (!file_exists($work->file)) {
                    $this->fail("no such order: $work->line", 100);
                }
                $this->note("$work->line ended");
        }
    }

    // Throws from a deep stack: the trace is too large for a header with every version of Symfony and PHP.
    private function fail(string $why, int $depth): void
    {
        if (0 === $depth) {
            throw new \DomainException($why);
        }
        $this->fail($why, $depth - 1);
    }

    private function note(string $line): void
    {
        file_put_contents(getenv('NOTES'), "$line\n", \FILE_APPEND);
    }
}
