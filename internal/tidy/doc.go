// Package tidy verifies the architecture. It consists of tests only: they read the
// sources of the whole module and fail on a violation.
//
//   - layers_test.go: which package may import which, and which package alone may
//     import a third-party module. A package that is not in the table fails.
//   - purity_test.go: no clock, goroutine or lock in a turn, and no init. Mutable
//     package variables are checked by golangci-lint.
//   - size_test.go: the size of files and functions.
//   - words_test.go: words that the project has retired.
//   - reference_test.go: events are in the reference, and documents name metrics and settings
//     that exist.
//   - llms_test.go: docs/llms.txt lists every page.
//   - links_test.go: links in documents, and pages that sources name, exist.
//   - glossary_test.go: the glossary of engine/doc.go uses terms of docs/reference/glossary.md.
//   - files_test.go: the licence exists, links in documents resolve, and nothing
//     names the machine that something was built on.
//   - documents_test.go: files, identifiers and layers that documents name are those of the
//     sources.
//   - guarantees_test.go: each row of docs/explanation/guarantees.md names tests that exist.
//
// Every rule is a function from sources to complaints, with a test that shows it a breach, so that
// a rule without effect is noticed.
package tidy
