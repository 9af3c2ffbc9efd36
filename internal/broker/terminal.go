package broker

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// askPassword returns a function that asks on the terminal without echo; nil if standard
// input is not a terminal.
func askPassword() func(question string) (string, error) {
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) {
		return nil
	}
	return func(question string) (string, error) {
		fmt.Fprint(os.Stderr, question)
		password, err := term.ReadPassword(in)
		fmt.Fprintln(os.Stderr)
		return string(password), err
	}
}
