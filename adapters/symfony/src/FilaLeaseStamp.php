<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Stamp\NonSendableStampInterface;

/**
 * What the broker says of a message that was received. A message that was only listed has no lease and so
 * no receipt: an operator acks or rejects it by its id.
 */
final class FilaLeaseStamp implements NonSendableStampInterface
{
    /**
     * Whether a transport of Fila has stored the message again, for a retry or as failed. Envelopes are
     * copied with their stamps, so the transport that the message came from sees it here.
     */
    public bool $storedAgain = false;

    public function __construct(
        public readonly string $id,
        public readonly ?string $receipt,
        public readonly string $key,
        public readonly int $attempt,
        public readonly int $enqueuedAt,
    ) {
    }
}
