package engine

import "fmt"

// amount is a number with what it counts: 1 message, 2 messages.
func amount[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
