// Package dashboard tests the dashboard in a real browser, against a real broker: it drives
// Chromium as a person does, by roles and names, and takes the pictures of docs/reference/dashboard.md.
//
// Any error on the console, any report of the content security policy and any request to another
// host fails the test in which it happens.
//
//	make test-dashboard
//	make test-dashboard ARGS=-pictures    and write the pictures of the documents again
//	make test-site                        the site of the documents only, from disk and from a server
//
// It is a module of its own, so that the broker does not depend on what drives a browser.
package dashboard
