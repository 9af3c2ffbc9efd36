// Package glob matches names with patterns as Redis does.
package glob

import (
	"errors"
	"strings"
)

// Match reports whether s as a whole matches the pattern: * ? [abc] [a-z] [^a], and \ to take the next
// byte as it is. A star that fails is retried one byte further, and only the last one: the work is at most
// the product of the lengths, whatever the pattern.
func Match(pattern, s string) bool {
	matches, _ := Count(pattern, s)
	return matches
}

// Count is Match, and counts the heads of the pattern that it compares.
func Count(pattern, s string) (matches bool, steps int) {
	star, mark := -1, 0 // behind the newest star; where it was met
	p, i := 0, 0
	for i < len(s) {
		steps++
		if p < len(pattern) {
			if pattern[p] == '*' {
				p++
				star, mark = p, i
				continue
			}
			if n, ok := oneByte(pattern[p:], s[i]); ok {
				p += n
				i++
				continue
			}
		}
		if star < 0 {
			return false, steps
		}
		mark++
		p, i = star, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern), steps
}

// oneByte matches one byte against the head of a pattern and returns how long
// that head is.
func oneByte(p string, b byte) (n int, ok bool) {
	switch p[0] {
	case '?':
		return 1, true
	case '\\':
		if len(p) > 1 {
			return 2, p[1] == b
		}
	case '[':
		return class(p, b)
	}
	return 1, p[0] == b
}

// class matches a byte against [...]; one that is never closed ends with the
// pattern, as in Redis.
func class(p string, b byte) (n int, ok bool) {
	i, not, found := 1, false, false
	if i < len(p) && p[i] == '^' {
		i, not = i+1, true
	}
	for i < len(p) && p[i] != ']' {
		switch {
		case p[i] == '\\' && i+1 < len(p):
			i++
			found = found || p[i] == b
		case i+2 < len(p) && p[i+1] == '-':
			low, high := min(p[i], p[i+2]), max(p[i], p[i+2])
			found = found || low <= b && b <= high
			i += 2
		default:
			found = found || p[i] == b
		}
		i++
	}
	return min(i+1, len(p)), found != not
}

// Check returns what is wrong with a pattern that a person has written. Match takes any,
// but one that ends within a class or behind a backslash was meant otherwise.
func Check(pattern string) error {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			if i++; i == len(pattern) {
				return errors.New("ends with a single \\, write \\\\ for the character itself")
			}
		case '[':
			for i++; i < len(pattern) && pattern[i] != ']'; i++ {
				if pattern[i] == '\\' {
					i++
				}
			}
			if i >= len(pattern) {
				return errors.New("has a [ without its ], write \\[ for the character itself")
			}
		}
	}
	return nil
}

// Quote returns the pattern that matches s and nothing else.
func Quote(s string) string {
	return strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace(s)
}
