<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Exception\TransportException;

/**
 * The broker has refused a command. The first word of the message is its code.
 */
final class ReplyException extends TransportException
{
    public function hasCode(string $code): bool
    {
        return str_starts_with($this->getMessage(), $code.' ');
    }
}
