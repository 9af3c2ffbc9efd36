<?php
// A hand with phpredis or Predis: hand.php phpredis|predis

function hex(string $mark, string $text): string { return $mark . bin2hex($text); }

function show(mixed $v): string
{
    if (is_array($v)) {
        return implode(' ', ['*' . count($v), ...array_map('show', $v)]);
    }
    return match (true) {
        is_int($v) => ":$v",
        $v === null => '_',
        $v === true => '$' . bin2hex('OK'), // phpredis makes true of +OK
        $v === false => '_',                // and false of null
        default => hex('$', (string) $v),
    };
}

class ReplyError extends Exception {}

class ByPhpredis
{
    private ?Redis $redis = null;
    public static function version(): string { return phpversion('redis'); }

    public function call(float $limit, array $args): mixed
    {
        try {
            if ($this->redis === null) {
                $this->redis = new Redis();
                $this->redis->connect(getenv('FILA_HOST'), (int) getenv('FILA_PORT'));
            }
            $this->redis->setOption(Redis::OPT_READ_TIMEOUT, $limit); // -1: none
            $this->redis->clearLastError();
            $v = $this->redis->rawCommand(...$args);
        } catch (RedisException $e) {
            // Errors with a code of their own are thrown as what breaks a connection is.
            if (preg_match('/^[A-Z]+ /', $e->getMessage())) {
                throw new ReplyError($e->getMessage());
            }
            $this->redis = null; // a late reply would be taken for that to the next command
            throw $e;
        }
        if ($v === false && $this->redis->getLastError() !== null) { // but ERR is not
            throw new ReplyError($this->redis->getLastError());
        }
        return $v;
    }
}

class ByPredis
{
    private array $clients = [];
    public static function version(): string { return Predis\Client::VERSION; }

    public function call(float $limit, array $args): mixed
    {
        // The timeout is the connection's: another one for what blocks, -1 for none.
        $client = $this->clients[(string) $limit] ??= new Predis\Client(
            ['host' => getenv('FILA_HOST'), 'port' => (int) getenv('FILA_PORT'), 'read_write_timeout' => $limit]
        );
        $failed = false;
        $v = $client->executeRaw($args, $failed);
        if ($failed) {
            throw new ReplyError($v);
        }
        return $v;
    }
}

if ($argv[1] === 'predis') {
    require 'Predis/autoload.php';
    $hand = new ByPredis();
} else {
    $hand = new ByPhpredis();
}
echo $hand::version(), "\n";
while (($line = fgets(STDIN)) !== false) {
    [$block, $args] = explode(' ', rtrim($line, "\n"), 2);
    $args = array_map(fn ($w) => hex2bin(substr($w, 1)), explode(' ', $args));
    $limit = match ($block) { '-' => 5, '0' => -1, default => $block / 1000 + 5 };
    try {
        echo show($hand->call($limit, $args)), "\n";
    } catch (ReplyError $e) {
        echo hex('-', $e->getMessage()), "\n";
    } catch (Exception $e) {
        echo hex('!', $e->getMessage()), "\n";
    }
}
