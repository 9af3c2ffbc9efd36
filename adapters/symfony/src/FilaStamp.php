<?php

namespace Fila\Messenger;

use Symfony\Component\Messenger\Stamp\StampInterface;

/**
 * The options of FILA.ENQUEUE that a message has. A retry has the same, and so has the message in a failure
 * transport, but for what prevents duplicates: they are not the message that failed.
 */
final class FilaStamp implements StampInterface
{
    /**
     * @param string[] $throttle the throttles that all have to admit the message
     * @param string[] $budget   the budgets that pay for it
     * @param int|null $ttl      milliseconds after which the message expires
     */
    public function __construct(
        public readonly ?string $key = null,
        public readonly array $throttle = [],
        public readonly ?int $priority = null,
        public readonly ?int $weight = null,
        public readonly ?int $cost = null,
        public readonly array $budget = [],
        public readonly ?int $charge = null,
        public readonly ?int $ttl = null,
        public readonly ?string $dedup = null,
        public readonly ?string $unique = null,
    ) {
    }

    /**
     * @return string[] arguments of FILA.ENQUEUE
     */
    public function arguments(bool $first): array
    {
        $options = ['KEY' => $this->key, 'THROTTLE' => $this->throttle, 'PRIORITY' => $this->priority, 'WEIGHT' => $this->weight,
            'COST' => $this->cost, 'BUDGET' => $this->budget, 'CHARGE' => $this->charge, 'TTL' => $this->ttl];
        if ($first) {
            $options += ['DEDUP' => $this->dedup, 'UNIQUE' => $this->unique];
        }
        $arguments = [];
        foreach ($options as $name => $values) {
            foreach ((array) $values as $value) { // of null there is none
                array_push($arguments, $name, (string) $value);
            }
        }

        return $arguments;
    }
}
