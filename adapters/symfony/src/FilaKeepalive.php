<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;

// Messenger extends leases by itself since 7.2: messenger:consume --keepalive.
if (interface_exists(KeepaliveReceiverInterface::class)) {
    /** @internal */
    interface FilaKeepalive extends KeepaliveReceiverInterface
    {
    }
} else {
    /** @internal */
    interface FilaKeepalive extends ReceiverInterface
    {
    }
}
