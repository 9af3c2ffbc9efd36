<?php

namespace Tests;

/**
 * A broker in a process of its own, with a directory that is removed when it stops.
 */
final class Broker
{
    public readonly string $directory;
    public readonly string $url;
    private int $port;
    private Process $process;

    private array $options;

    public function __construct(private string $password = '', string ...$options)
    {
        $this->options = $options;
        $this->directory = getenv('CACHE').'/broker'.bin2hex(random_bytes(4));
        mkdir($this->directory);
        $this->port = self::reserve();
        $this->url = "fila://127.0.0.1:$this->port";
        $this->start();
    }

    /**
     * A port for a server. The system gives it to no other process until this one ends: a socket that never
     * listens is bound to it, and servers may bind it beside that, as they set SO_REUSEADDR.
     */
    public static function reserve(): int
    {
        static $reserved = [];
        $reserved[] = $socket = socket_create(\AF_INET, \SOCK_STREAM, \SOL_TCP);
        socket_set_option($socket, \SOL_SOCKET, \SO_REUSEADDR, 1);
        socket_bind($socket, '127.0.0.1');
        socket_getsockname($socket, $address, $port);

        return $port;
    }

    public function start(): void
    {
        $this->process = new Process([getenv('TEST_BROKER'), '--server.listen_addr', "127.0.0.1:$this->port", '--storage.path', $this->directory.'/data',
            '--admin.listen_addr', '', '--log.level', 'error', ...$this->options]);
        Process::wait('the broker answers', function () {
            try {
                return $this->client()->ping();
            } catch (\RedisException) {
                return false;
            }
        });
    }

    public function kill(): void
    {
        $this->process->kill();
    }

    public function call(string|int ...$command): mixed
    {
        $redis = $this->client();
        $reply = $redis->rawCommand(...$command);
        if (false === $reply && null !== $redis->getLastError()) {
            throw new \RuntimeException($redis->getLastError());
        }

        return $reply;
    }

    public function info(string $queue): array
    {
        return self::map($this->call('FILA.QUEUE', 'INFO', $queue));
    }

    /** All messages of a queue, also of one that there is not. */
    public function messages(string $queue): array
    {
        if (!\in_array($queue, $this->call('FILA.QUEUE', 'LIST'))) {
            return [];
        }
        $messages = array_map(self::map(...), $this->call('FILA.BROWSE', $queue, 'COUNT', 1000)[1]);

        return array_map(fn ($m) => ['headers' => self::map($m['headers'])] + $m, $messages);
    }

    private static function map(array $reply): array
    {
        return array_column(array_chunk($reply, 2), 1, 0);
    }

    private function client(): \Redis
    {
        $redis = new \Redis();
        @$redis->connect('127.0.0.1', $this->port, Process::patience(), null, 0, Process::patience());
        '' !== $this->password && $redis->auth($this->password);

        return $redis;
    }
}
