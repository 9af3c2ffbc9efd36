<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Exception\TransportException;

/**
 * The connection to the broker has failed, or there is none.
 */
final class UnreachableException extends TransportException
{
}
