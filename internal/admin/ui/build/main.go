// Program build makes the files of the dashboard, internal/admin/ui/dist, from their sources.
//
//	go run .              write dist
//
// It is a module of its own, so that the broker does not depend on the bundler. What it makes is
// committed, and is a function of the sources, of the version of the bundler in go.mod and of that
// of Go: TestTheFilesAreWhatTheSourcesGive builds again and compares.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if err := write(".."); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// write replaces the files of the dashboard in a directory, that of package ui.
func write(dir string) error {
	files, err := build(dir)
	if err != nil {
		return err
	}
	dist := filepath.Join(dir, "dist")
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(dist, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // these are sources that are published
			return err
		}
	}
	return nil
}

// build returns the files of the dashboard by their path below dist. Names of assets have the
// digest of what is in them, so that a browser may keep them; the page names them.
func build(dir string) (map[string][]byte, error) {
	src, err := filepath.Abs(filepath.Join(dir, "src"))
	if err != nil {
		return nil, err
	}
	bundle, err := bundled(src)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	page, err := os.ReadFile(filepath.Join(src, "index.html")) //nolint:gosec // a source of this directory
	if err != nil {
		return nil, err
	}
	icon, err := os.ReadFile(filepath.Join(src, "icon.svg")) //nolint:gosec // likewise
	if err != nil {
		return nil, err
	}
	bundle["icon.svg"] = icon
	for name, text := range bundle {
		hashed := "assets/" + hashedName(name, text)
		if !bytes.Contains(page, []byte(`"assets/`+name+`"`)) {
			return nil, fmt.Errorf("src/index.html does not name assets/%s", name)
		}
		page = bytes.ReplaceAll(page, []byte(`"assets/`+name+`"`), []byte(`"`+hashed+`"`))
		files[hashed] = text
	}
	files["index.html"] = page
	for name, text := range maps.Clone(files) {
		if files[name+".gz"], err = compressed(text); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// bundled returns the script and the style sheet.
func bundled(src string) (map[string][]byte, error) {
	lib := filepath.Join(filepath.Dir(src), "lib")
	result := api.Build(api.BuildOptions{
		EntryPoints:   []string{filepath.Join(src, "main.tsx"), filepath.Join(src, "style.css")},
		AbsWorkingDir: filepath.Dir(src),
		Outdir:        "/out",
		Bundle:        true,
		Format:        api.FormatESModule,
		Target:        api.ES2022,
		// light-dark() and nesting are in all browsers since 2024; to rewrite them would break the switch of themes.
		Supported:         map[string]bool{"nesting": true},
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		LegalComments:     api.LegalCommentsEndOfFile,
		Banner:            map[string]string{"js": notice, "css": notice},
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		Alias: map[string]string{
			"preact":             filepath.Join(lib, "preact", "src", "index.js"),
			"preact/hooks":       filepath.Join(lib, "preact", "hooks", "src", "index.js"),
			"preact/jsx-runtime": filepath.Join(lib, "preact", "jsx-runtime", "src", "index.js"),
			"uplot":              filepath.Join(lib, "uplot", "uPlot.esm.js"),
		},
		TsconfigRaw: `{"compilerOptions": {"useDefineForClassFields": true}}`,
		LogLevel:    api.LogLevelSilent,
	})
	if len(result.Errors)+len(result.Warnings) > 0 {
		text := api.FormatMessages(append(result.Errors, result.Warnings...), api.FormatMessagesOptions{})
		return nil, errors.New(strings.Join(text, "\n"))
	}
	files := map[string][]byte{}
	for _, f := range result.OutputFiles {
		files[path.Base(filepath.ToSlash(f.Path))] = f.Contents
	}
	return files, nil
}

// notice is at the head of what is delivered to browsers.
const notice = "/*! Fila's dashboard, AGPL-3.0; with Preact (MIT, (c) Jason Miller) and uPlot (MIT, (c) Leon Sorokin). */"

// hashedName puts the digest of a file into its name, before its extension.
func hashedName(name string, text []byte) string {
	digest := sha256.Sum256(text)
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(digest[:5]))
	ext := path.Ext(name)
	return strings.TrimSuffix(name, ext) + "-" + hash + ext
}

// compressed returns a text in the form of gzip.
func compressed(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
