// Program build makes the files of the dashboard, internal/ops/admin/ui/dist, from their sources and from
// the npm packages that package.json pins, whose licences it writes to NOTICE.txt.
//
//	npm ci; go run .              write dist and NOTICE.txt
//
// It is a module of its own, so that the broker does not depend on the bundler. What it makes is
// committed, and is a function of the sources, of package-lock.json, of the version of the bundler in
// go.mod and of that of Go: TestTheFilesAreWhatTheSourcesGive builds again and compares.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
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
	notice, err := notices(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "NOTICE.txt"), notice, 0o644); err != nil { //nolint:gosec // this is published
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
	modules := filepath.Join(filepath.Dir(src), "node_modules")
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
			// From its sources Preact becomes smaller than from what it has bundled itself.
			"preact":             filepath.Join(modules, "preact", "src", "index.js"),
			"preact/hooks":       filepath.Join(modules, "preact", "hooks", "src", "index.js"),
			"preact/jsx-runtime": filepath.Join(modules, "preact", "jsx-runtime", "src", "index.js"),
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
const notice = "/*! Made by make ui, do not edit. Fila's dashboard, AGPL-3.0; with Preact (MIT, (c) Jason Miller) and uPlot (MIT, (c) Leon Sorokin). */"

// library is an npm package that the dashboard contains.
type library struct{ Name, Version, License string }

// libraries returns the packages of package-lock.json, by name. All of them are part of the dashboard:
// what is needed for building alone is not there.
func libraries(dir string) ([]library, error) {
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json")) //nolint:gosec // a source of this directory
	if err != nil {
		return nil, err
	}
	var lock struct{ Packages map[string]library }
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	var all []library
	for _, at := range slices.Sorted(maps.Keys(lock.Packages)) {
		if name, ok := strings.CutPrefix(at, "node_modules/"); ok {
			l := lock.Packages[at]
			l.Name = name
			all = append(all, l)
		}
	}
	return all, nil
}

// notices returns the licences of the libraries. A line "name version licence" begins each of them:
// releases name what they contain from these.
func notices(dir string) ([]byte, error) {
	all, err := libraries(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("The dashboard contains these npm packages. Made by make ui, do not edit.\n")
	for _, l := range all {
		text, err := os.ReadFile(filepath.Join(dir, "node_modules", l.Name, "LICENSE")) //nolint:gosec // its name is from the lock
		if err != nil {
			return nil, fmt.Errorf("%w; npm ci in internal/ops/admin/ui fetches it", err)
		}
		fmt.Fprintf(&b, "\nnpm: %s %s %s\n\n%s\n", l.Name, l.Version, l.License, bytes.TrimSpace(text))
	}
	return b.Bytes(), nil
}

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
