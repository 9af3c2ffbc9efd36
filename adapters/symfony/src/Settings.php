<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Exception\InvalidArgumentException;
use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;

/**
 * The settings of a transport, checked. Times are milliseconds, as in Fila.
 *
 * @internal
 */
final class Settings
{
    private const DEFAULTS = ['queue' => null, 'visibility' => 30000, 'block' => 0, 'keepalive' => false, 'auto_setup' => true,
        'dead_letter' => true, 'create' => [], 'ssl' => []];

    private function __construct(
        public readonly string $host,
        public readonly int $port,
        public readonly bool $tls,
        #[\SensitiveParameter]
        public readonly array $auth,     // [password] or [user, password], or empty
        public readonly string $queue,
        public readonly int $visibility, // the time of a lease
        public readonly int $block,      // for how long a worker waits in the broker
        public readonly bool $keepalive,
        public readonly bool $autoSetup,
        public readonly bool $deadLetter,
        public readonly array $create,   // options of FILA.QUEUE CREATE
        public readonly array $ssl,      // context options of PHP
    ) {
    }

    public static function fromDsn(#[\SensitiveParameter] string $dsn, array $options): self
    {
        if (false === $url = parse_url($dsn)) {
            throw new InvalidArgumentException('The DSN of Fila is not of the form fila://user:password@host:port/queue?option=value.');
        }
        parse_str($url['query'] ?? '', $query);
        unset($options['transport_name']); // Messenger's own
        $options = $query + $options + self::DEFAULTS;
        if ($unknown = array_diff_key($options, self::DEFAULTS)) {
            throw new InvalidArgumentException(sprintf('No option of a transport of Fila: %s; there are %s.', implode(', ', array_keys($unknown)), implode(', ', array_keys(self::DEFAULTS))));
        }
        $keepalive = filter_var($options['keepalive'], \FILTER_VALIDATE_BOOL);
        if ($keepalive && interface_exists(KeepaliveReceiverInterface::class)) {
            throw new InvalidArgumentException('The option "keepalive" is for Symfony before 7.2: use messenger:consume --keepalive.');
        }
        if ($keepalive && !\function_exists('pcntl_alarm')) {
            throw new InvalidArgumentException('The option "keepalive" needs the extension pcntl.');
        }
        $visibility = self::number('visibility', $options, $keepalive ? 2000 : 1000); // an alarm comes after a second at least
        $auth = array_values(array_filter([urldecode($url['user'] ?? ''), urldecode($url['pass'] ?? '')], 'strlen'));
        $queue = urldecode(trim($url['path'] ?? '', '/'));

        return new self($url['host'] ?? '127.0.0.1', $url['port'] ?? 5555, 'filas' === $url['scheme'], $auth,
            '' !== $queue ? $queue : $options['queue'] ?? 'messages', $visibility, self::number('block', $options, 0),
            $keepalive, filter_var($options['auto_setup'], \FILTER_VALIDATE_BOOL), filter_var($options['dead_letter'], \FILTER_VALIDATE_BOOL),
            $options['create'], $options['ssl']);
    }

    private static function number(string $name, array $options, int $min): int
    {
        $value = filter_var($options[$name], \FILTER_VALIDATE_INT, ['options' => ['min_range' => $min]]);
        if (false === $value) {
            throw new InvalidArgumentException(sprintf('The option "%s" of a transport of Fila is not a number of milliseconds of at least %d.', $name, $min));
        }

        return $value;
    }
}
