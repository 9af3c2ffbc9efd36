//go:build !race

package commands

// raced is explained in race_on_test.go.
const raced = false
