<?php

namespace App;

/**
 * A message that says what its handler does. It knows nothing of Fila. The class decides on the transport.
 */
abstract class Message
{
    public function __construct(public string $line, public string $kind = 'note', public string $file = '')
    {
    }
}
