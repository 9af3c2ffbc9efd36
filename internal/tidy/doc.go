// Package tidy holds the architecture to its word. It is only tests: they read
// the sources of the whole module and fail where one does what it may not.
//
//   - layers_test.go: which package may import which, and who alone may import a
//     third-party module. A package that is not in the table fails.
//   - purity_test.go: no clock, no goroutine and no lock where a turn is made, and
//     no init. Mutable package variables are golangci-lint's.
//   - size_test.go: files and functions that have grown past reading.
//   - files_test.go: the licence is there, links in documents lead somewhere, and
//     nothing names the machine that something was built on.
//   - guarantees_test.go: each row of docs/guarantees.md names tests that exist.
//
// Every rule is a function from sources to complaints and has a test that shows
// it a breach, so that a rule that sees nothing is not taken for a clean tree.
package tidy
