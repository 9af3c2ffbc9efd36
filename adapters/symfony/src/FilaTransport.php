<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\LogicException;
use Symfony\Component\Messenger\Exception\MessageDecodingFailedException;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\ErrorDetailsStamp;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Receiver\ListableReceiverInterface;
use Symfony\Component\Messenger\Transport\Receiver\MessageCountAwareInterface;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Messenger\Transport\SetupableTransportInterface;
use Symfony\Component\Messenger\Transport\TransportInterface;

/**
 * A queue of Fila as a transport.
 *
 * 1. get() leases messages, one unless Messenger asks for more, so the broker decides which is next.
 * 2. ack() ends the lease of a message that was handled.
 * 3. Of one that failed, Messenger first sends a copy to this transport, to retry it, or to the failure
 *    transport; then it calls reject(). If a transport of Fila has stored the copy, reject() acks the
 *    message. If not, it goes to the dead-letter queue, with the error.
 *
 * A message whose worker is killed in between is delivered again when its lease expires.
 */
final class FilaTransport implements TransportInterface, SetupableTransportInterface, MessageCountAwareInterface, ListableReceiverInterface, FilaKeepalive
{
    private const ERROR_MAX = 1000; // characters of an error that the broker keeps
    private const LIST_MAX = 1000;

    /** The fairness key of the message that this process handles now, of whatever transport. */
    private static ?string $handled = null;

    private Connection $connection;
    private Alarm $alarm;

    /**
     * @internal made by FilaTransportFactory
     */
    public function __construct(private Settings $settings, private SerializerInterface $serializer)
    {
        $this->connection = new Connection($settings);
        $this->alarm = new Alarm($settings);
    }

    public function send(Envelope $envelope): Envelope
    {
        $encoded = $this->serializer->encode($envelope);
        $encoded['headers'] = ($encoded['headers'] ?? []) + ['type' => $envelope->getMessage()::class]; // PhpSerializer has none
        [$payload, $arguments] = Wire::encode($encoded);
        $lease = $envelope->last(FilaLeaseStamp::class);
        $again = null !== $envelope->last(RedeliveryStamp::class);
        $stamp = $envelope->last(FilaStamp::class) ?? new FilaStamp();
        array_push($arguments, ...$stamp->arguments(!$again));
        // A retry keeps the key that the producer or a script has named, and what a handler sends belongs to the same tenant.
        $key = $again && null !== $lease ? $lease->key : self::$handled;
        if (null === $stamp->key && null !== $key) {
            array_push($arguments, 'KEY', $key);
        }
        if (0 < $delay = $envelope->last(DelayStamp::class)?->getDelay() ?? 0) {
            array_push($arguments, 'DELAY', (string) $delay);
        }
        $id = $this->connection->once('FILA.ENQUEUE', $this->settings->queue, $payload, ...$arguments);
        if ($again && null !== $lease) {
            $lease->storedAgain = true;
        }

        return $envelope->with(new TransportMessageIdStamp($id));
    }

    public function get(int $fetchSize = 1): iterable
    {
        $block = 0 < $this->settings->block ? ['BLOCK', $this->settings->block] : [];
        $leased = $this->connection->call('FILA.LEASE', $this->settings->queue, 'COUNT', $fetchSize, ...$block,
            ...['VISIBILITY', $this->settings->visibility, 'CONSUMER', gethostname().':'.getmypid()]);
        foreach ($leased as [$receipt]) {
            $this->alarm->add($receipt);
        }
        $envelopes = [];
        foreach ($leased as [$receipt, $payload, $headers, $key, $attempt, , $enqueuedAt]) {
            $lease = new FilaLeaseStamp(strstr($receipt, ':', true), $receipt, $key, $attempt, $enqueuedAt);
            try {
                $envelopes[] = $this->decode($payload, $headers, $lease);
            } catch (MessageDecodingFailedException $e) {
                $this->bury($receipt, $e->getMessage());
                throw $e;
            }
        }

        return self::handed($envelopes);
    }

    /**
     * Hands envelopes over one by one, and knows whose each is until the next one is asked for.
     */
    private static function handed(array $envelopes): \Generator
    {
        try {
            foreach ($envelopes as $envelope) {
                self::$handled = self::lease($envelope)->key;
                yield $envelope;
            }
        } finally {
            self::$handled = null;
        }
    }

    public function ack(Envelope $envelope): void
    {
        $this->remove(self::lease($envelope));
    }

    public function reject(Envelope $envelope): void
    {
        $lease = self::lease($envelope);
        if (null === $lease->receipt || $lease->storedAgain || !$this->settings->deadLetter) {
            $this->remove($lease);

            return;
        }
        $error = $envelope->last(ErrorDetailsStamp::class);
        $this->bury($lease->receipt, null === $error ? 'rejected' : $error->getExceptionClass().': '.$error->getExceptionMessage());
    }

    public function keepalive(Envelope $envelope, ?int $seconds = null): void
    {
        $lease = self::lease($envelope);
        if (null !== $lease->receipt) {
            $this->connection->call('FILA.EXTEND', $this->settings->queue, $lease->receipt, max($this->settings->visibility, 2000 * ($seconds ?? 0)));
        }
    }

    public function setup(): void
    {
        $this->connection->setup();
    }

    public function getMessageCount(): int
    {
        $info = Connection::map($this->connection->call('FILA.QUEUE', 'INFO', $this->settings->queue));

        return $info['ready'] + $info['delayed'];
    }

    public function all(?int $limit = null): iterable
    {
        [, $messages] = $this->connection->call('FILA.BROWSE', $this->settings->queue, 'COUNT', min($limit ?? self::LIST_MAX, self::LIST_MAX));
        foreach ($messages as $message) {
            yield $this->listed(Connection::map($message));
        }
    }

    public function find($id): ?Envelope
    {
        $message = $this->connection->call('FILA.GET', $this->settings->queue, (string) $id);

        return $message ? $this->listed(Connection::map($message)) : null;
    }

    private function listed(array $message): Envelope
    {
        $lease = new FilaLeaseStamp($message['id'], null, $message['key'], $message['attempt'], $message['enqueued_at']);

        return $this->decode($message['payload'], $message['headers'], $lease);
    }

    private function decode(string $payload, array $headers, FilaLeaseStamp $lease): Envelope
    {
        return $this->serializer->decode(Wire::decode($payload, Connection::map($headers)))
            ->withoutAll(TransportMessageIdStamp::class)
            ->with($lease, new TransportMessageIdStamp($lease->id));
    }

    private static function lease(Envelope $envelope): FilaLeaseStamp
    {
        return $envelope->last(FilaLeaseStamp::class) ?? throw new LogicException('The envelope has no FilaLeaseStamp: it was not received from a transport of Fila.');
    }

    /**
     * Acks a message. Of a lease that is lost the message is another worker's, which is not an error.
     */
    private function remove(FilaLeaseStamp $lease): void
    {
        if (null === $lease->receipt) {
            $this->connection->call('FILA.CANCEL', $this->settings->queue, $lease->id);

            return;
        }
        $this->alarm->remove($lease->receipt);
        $this->connection->call('FILA.ACK', $this->settings->queue, $lease->receipt);
    }

    private function bury(string $receipt, string $error): void
    {
        $this->alarm->remove($receipt);
        try {
            $this->connection->call('FILA.NACK', $this->settings->queue, $receipt, 'ERROR', substr($error, 0, self::ERROR_MAX), 'DEAD');
        } catch (ReplyException $e) {
            if (!$e->hasCode('LEASELOST')) {
                throw $e;
            }
        }
    }
}
