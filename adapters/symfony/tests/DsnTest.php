<?php

namespace Tests;

use Fila\Messenger\FilaTransportFactory;
use PHPUnit\Framework\TestCase;
use Symfony\Component\Messenger\Exception\InvalidArgumentException;
use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;

/** Settings that are refused. Nothing is connected to. */
final class DsnTest extends TestCase
{
    /** @dataProvider wrong */
    #[\PHPUnit\Framework\Attributes\DataProvider('wrong')]
    public function testADsnThatIsWrong(string $dsn, string $error): void
    {
        $this->expectException(InvalidArgumentException::class);
        $this->expectExceptionMessage($error);
        (new FilaTransportFactory())->createTransport($dsn, [], new PhpSerializer());
    }

    public static function wrong(): array
    {
        return [
            ['fila://host:port/queue', 'The DSN of Fila is not of the form'],
            ['fila://host/queue?visibilty=1', 'No option of a transport of Fila: visibilty; there are queue, visibility,'],
            ['fila://host/queue?visibility=999', 'The option "visibility" of a transport of Fila is not a number of milliseconds of at least 1000.'],
            ['fila://host/queue?visibility=1999&keepalive=1', interface_exists(KeepaliveReceiverInterface::class) ? 'use messenger:consume --keepalive' : 'milliseconds of at least 2000.'],
            ['fila://host/queue?block=soon', 'The option "block"'],
        ];
    }
}
