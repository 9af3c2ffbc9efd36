<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Exception\TransportException;

/**
 * A connection to the broker, with ext-redis. It is opened when it is first used.
 *
 * An error of the connection closes it: ext-redis would take a late reply for that to the next command.
 *
 * @internal
 */
final class Connection
{
    private const IDLE = 5;       // seconds after which a connection is tried before it is used
    private const RECONNECT = 30; // seconds for which a command that may be repeated waits for the broker: a lease, unless it is set
    private const PAUSE = 200000; // microseconds between two such attempts

    private ?\Redis $redis = null;
    private float $used = 0;
    private bool $connected = false; // once at least

    public function __construct(private Settings $settings)
    {
    }

    /**
     * Sends a command once: when the connection fails, it may have had its effect or not.
     */
    public function once(string|int ...$command): mixed
    {
        return $this->onQueue(fn () => $this->send($command));
    }

    /**
     * Sends a command that may be repeated. It waits for a broker that restarts, but not for one that
     * has never answered.
     */
    public function call(string|int ...$command): mixed
    {
        $end = microtime(true) + self::RECONNECT;
        while (true) {
            try {
                return $this->onQueue(fn () => $this->send($command));
            } catch (UnreachableException $e) {
                if (!$this->connected || microtime(true) > $end) {
                    throw $e;
                }
                usleep(self::PAUSE);
            }
        }
    }

    /**
     * Creates the queue. One that exists keeps its settings.
     */
    public function setup(): void
    {
        $options = [];
        foreach ($this->settings->create as $name => $value) {
            array_push($options, strtoupper($name), ...(true === $value ? [] : [(string) $value]));
        }
        $this->send(['FILA.QUEUE', 'CREATE', $this->settings->queue, 'IFNOTEXISTS', ...$options]);
    }

    /**
     * A reply that is a map, as an array with its keys.
     */
    public static function map(array $reply): array
    {
        $map = [];
        foreach (array_chunk($reply, 2) as [$name, $value]) {
            $map[$name] = $value;
        }

        return $map;
    }

    private function onQueue(\Closure $run): mixed
    {
        try {
            return $run();
        } catch (ReplyException $e) {
            if (!$this->settings->autoSetup || !$e->hasCode('NOQUEUE')) {
                throw $e;
            }
        }
        $this->setup();

        return $run();
    }

    private function send(array $command): mixed
    {
        try {
            $redis = $this->redis();
            $redis->clearLastError();
            $reply = $redis->rawCommand(...$command);
            if (false === $reply && null !== $error = $redis->getLastError()) {
                throw new ReplyException($error);
            }
        } catch (\RedisException $e) {
            // Replies that are errors are exceptions of the same class, unless their code is ERR.
            if (preg_match('/^[A-Z]+ /', $e->getMessage())) {
                throw new ReplyException($e->getMessage(), 0, $e);
            }
            $this->redis = null;
            throw new UnreachableException(sprintf('Fila at %s:%d: %s', $this->settings->host, $this->settings->port, $e->getMessage()), 0, $e);
        }
        $this->used = microtime(true);
        $this->connected = true;

        return $reply;
    }

    private function redis(): \Redis
    {
        if (null !== $this->redis && microtime(true) - $this->used > self::IDLE) {
            try {
                $this->redis->ping();
            } catch (\RedisException) {
                $this->redis = null;
            }
        }

        return $this->redis ??= $this->open();
    }

    private function open(): \Redis
    {
        $s = $this->settings;
        $redis = new \Redis();
        // ext-redis warns of an address that it cannot connect to, and then throws.
        @$redis->connect(($s->tls ? 'tls://' : '').$s->host, $s->port, 5, null, 0, $s->block / 1000 + 10, $s->ssl ? ['stream' => $s->ssl] : []);
        if ($s->auth) {
            $redis->auth($s->auth);
        }

        return $redis;
    }
}
