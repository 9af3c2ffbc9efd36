<?php

namespace Tests;

/**
 * A process, and waiting. What it writes is shown when the test fails.
 */
final class Process
{
    /** @var resource */
    private $process;
    private string $log;

    public function __construct(array $command, array $environment = [])
    {
        $this->log = tempnam(getenv('CACHE'), 'log');
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], ['file', $this->log, 'a'], ['file', $this->log, 'a']], $pipes, null, $environment + getenv());
    }

    /** The console of the application. */
    public static function console(array $environment, string ...$arguments): self
    {
        return new self([\PHP_BINARY, __DIR__.'/app/console', '--no-interaction', ...$arguments], $environment);
    }

    /** How long a test waits for something, in seconds: two minutes, times TEST_PATIENCE. */
    public static function patience(): float
    {
        return 120 * (float) (getenv('TEST_PATIENCE') ?: 1);
    }

    public static function wait(string $what, \Closure $condition): mixed
    {
        $end = microtime(true) + self::patience();
        while (!$value = $condition()) {
            if (microtime(true) > $end) {
                throw new \RuntimeException('not within '.self::patience()." s: $what");
            }
            usleep(20000);
            clearstatcache();
        }

        return $value;
    }

    public function kill(): void
    {
        $this->end(\SIGKILL);
    }

    public function signal(int $signal): void
    {
        proc_terminate($this->process, $signal);
    }

    /** Waits for the end of the process, after a signal if one is named. Returns its exit code. */
    public function end(int $signal = 0): int
    {
        if (!\is_resource($this->process)) {
            return -1;
        }
        $signal && proc_terminate($this->process, $signal);
        $status = self::wait('the process ends', function () {
            $status = proc_get_status($this->process);

            return $status['running'] ? null : $status;
        });
        proc_close($this->process);

        return $status['exitcode'];
    }

    public function output(): string
    {
        return file_get_contents($this->log);
    }
}
