package broker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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

// askConfirmation returns a function that asks a question on the terminal and tells whether
// the answer was yes; nil if standard input is not a terminal.
func askConfirmation() func(question string) (bool, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	return func(question string) (bool, error) {
		fmt.Fprint(os.Stderr, question)
		answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
		answer = strings.ToLower(strings.TrimSpace(answer))
		if errors.Is(err, io.EOF) {
			err = nil // the answer is no
		}
		return answer == "y" || answer == "yes", err
	}
}
