package storage

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// SignalWindows is how many windows a Signal has room for.
const SignalWindows = 4

// Signal is the faded sums of a pair of subject and name, as engine/internal/decay defines them. Its
// key is AppendSignalKey.
type Signal struct {
	At      int64   // of the newest value
	All     float64 // the sum that never fades
	Windows [SignalWindows]SignalWindow
}

// SignalWindow is the sum of one window, relative to the last multiple of 64 lengths that is
// not after Signal.At.
type SignalWindow struct {
	LengthMs uint64 // 0: there is no such window
	Sum      float64
}

// AppendSignalPrefix appends the common prefix of the keys of all signals of a subject.
func AppendSignalPrefix(dst []byte, subject string) []byte { return appendString(dst, subject) }

// AppendSignalKey appends the key of a signal.
func AppendSignalKey(dst []byte, subject, name string) []byte {
	return append(appendString(dst, subject), name...)
}

// ParseSignalKey decodes the key of a signal, or returns ErrCorrupt.
func ParseSignalKey(k []byte) (subject, name string, err error) {
	subject, rest, ok := nextString(k)
	if !ok || subject == "" || len(rest) == 0 {
		return "", "", badKey("signal", k)
	}
	return subject, string(rest), nil
}

// Append appends the encoded record.
func (s *Signal) Append(dst []byte) []byte { return encode(dst, s) }

// Decode reads a record that Append made.
func (s *Signal) Decode(b []byte) error { return decode(b, s, Signal{}, "signal", nil) }

// CheckSignal verifies a record of a signal: its numbers are finite.
func CheckSignal(key, value []byte) error {
	subject, name, err := ParseSignalKey(key)
	if err != nil {
		return err
	}
	var rec Signal
	if err := rec.Decode(value); err != nil {
		return fmt.Errorf("signal %.80q of %.80q: %w", name, subject, err)
	}
	sums := []float64{rec.All}
	for _, w := range rec.Windows {
		sums = append(sums, w.Sum)
	}
	if rec.At < 0 || slices.ContainsFunc(sums, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
		return fmt.Errorf("signal %.80q of %.80q has impossible sums: %w", name, subject, ErrCorrupt)
	}
	return nil
}

func (s *Signal) fields(c *codec) {
	c.int64(1, &s.At)
	c.float64(2, &s.All)
	for i := range s.Windows {
		w, num := &s.Windows[i], protowire.Number(3+2*i)
		c.uint64(num, &w.LengthMs)
		c.float64(num+1, &w.Sum)
	}
}
