<?php

namespace Fila\Messenger;

/**
 * What Messenger's serializer has encoded, a body and headers, as the payload and the headers of a message.
 *
 * Headers stay headers, so operators and scripts see them. Those that are too large for one, such as the
 * stamp with the trace of an error, stand as JSON before the body; a header has the length of that.
 *
 * @internal
 */
final class Wire
{
    private const LARGE = 'fila-large-headers';
    private const VALUE_MAX = 8192; // bytes of a header's value in Fila
    private const HEADERS_MAX = 60; // and their number is 64

    /**
     * @return array{string, string[]} payload, and arguments of FILA.ENQUEUE
     */
    public static function encode(array $encoded): array
    {
        $arguments = $large = [];
        foreach ($encoded['headers'] ?? [] as $name => $value) {
            if (\strlen($value) > self::VALUE_MAX || \count($arguments) >= 3 * self::HEADERS_MAX) {
                $large[$name] = $value;
            } else {
                array_push($arguments, 'HEADER', (string) $name, $value);
            }
        }
        if (!$large) {
            return [$encoded['body'], $arguments];
        }
        $json = json_encode($large, \JSON_THROW_ON_ERROR);

        return [$json.$encoded['body'], ['HEADER', self::LARGE, (string) \strlen($json), ...$arguments]];
    }

    /**
     * @return array{body: string, headers: array<string, string>}
     */
    public static function decode(string $payload, array $headers): array
    {
        if (null !== $length = $headers[self::LARGE] ?? null) {
            $headers += json_decode(substr($payload, 0, (int) $length), true) ?? [];
            $payload = substr($payload, (int) $length);
            unset($headers[self::LARGE]);
        }

        return ['body' => $payload, 'headers' => $headers];
    }
}
