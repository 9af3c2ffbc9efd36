<?php
// What phpredis leaves to its user, to be copied: errors of the broker as one
// exception, and those of the connection as another.

class FilaError extends Exception {}

// A connection whose calls take $limit seconds at most: longer than BLOCK.
function connect(float $limit): Redis
{
    $redis = new Redis();
    $redis->connect(getenv('FILA_HOST') ?: '127.0.0.1', (int) (getenv('FILA_PORT') ?: 5555), 5);
    $redis->setOption(Redis::OPT_READ_TIMEOUT, $limit);
    return $redis;
}

// The reply to a command. After a RedisException the connection is not to be used
// again: a late reply would be taken for that to the next command.
function fila(Redis $redis, string ...$command): mixed
{
    $redis->clearLastError();
    try {
        $reply = $redis->rawCommand(...$command);
    } catch (RedisException $e) {
        throw preg_match('/^[A-Z]+ /', $e->getMessage()) ? new FilaError($e->getMessage()) : $e;
    }
    if ($reply === false && $redis->getLastError() !== null) {
        throw new FilaError($redis->getLastError());
    }
    return $reply;
}
