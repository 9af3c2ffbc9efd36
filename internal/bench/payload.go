package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// noiseBits is the logarithm of the size of the noise that payloads are cut from.
const noiseBits = 20

// Noise is the source of payloads: incompressible and distinct, the worst case of a
// store. It is immutable and may be shared.
type Noise []byte

// NewNoise returns noise for payloads of up to size bytes, the same on each call.
func NewNoise(size int) Noise {
	noise := make(Noise, 1<<noiseBits+size)
	chance := rand.NewChaCha8([32]byte{})
	_, _ = chance.Read(noise) // never fails
	return noise
}

// Payload returns the n-th payload of size bytes. It must not be modified.
func (s Noise) Payload(n uint64, size int) []byte {
	// Payloads of neighbouring messages must not overlap in the noise, or they compress.
	at := n * 0x9E3779B97F4A7C15 >> (64 - noiseBits)
	return s[at : at+uint64(size)]
}

// stampBytes is the size of the timestamp at the start of a payload.
const stampBytes = 8

// stamp writes a timestamp into a payload.
func stamp(payload []byte, at time.Duration) {
	binary.BigEndian.PutUint64(payload, uint64(at))
}

// stamped returns the timestamp of a payload.
func stamped(payload []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint64(payload))
}
