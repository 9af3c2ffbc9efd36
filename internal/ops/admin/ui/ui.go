// Package ui has the dashboard: its sources in src, and what a browser gets of them in dist.
//
// dist is made of src and lib by the program in build (`make ui`) and is committed, so that to build
// the broker takes nothing but Go.
package ui

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed dist
var files embed.FS

// Handler serves the dashboard: the page at /, and what it names below /assets/. All of it is the
// same for every user and holds nothing of the broker, so it needs no user: the page has to be
// there for the login.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { send(w, r, "index.html") })
	mux.HandleFunc("GET /assets/{name}", func(w http.ResponseWriter, r *http.Request) {
		// The name changes with what is in the file, so a browser may keep it for good.
		if send(w, r, "assets/"+r.PathValue("name")) {
			return
		}
		http.NotFound(w, r)
	})
	return mux
}

// send answers with a file, compressed if the browser takes that. It reports whether there is
// such a file.
func send(w http.ResponseWriter, r *http.Request, name string) bool {
	file := "dist/" + name
	if strings.HasSuffix(name, ".gz") {
		return false
	}
	if _, err := fs.Stat(files, file); err != nil {
		return false
	}
	h := w.Header()
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		file += ".gz"
		h.Set("Content-Encoding", "gzip")
	}
	text, err := files.ReadFile(file)
	if err != nil {
		return false // there is none without its compressed form
	}
	h.Set("Content-Type", types()[path.Ext(name)])
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(text) //nolint:gosec // a file of this package; an error is the client's
	return true
}

// types are the content types of files. Those of the system differ from machine to machine.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".svg":  "image/svg+xml",
	}
}
