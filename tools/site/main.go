// Site makes a static site of the documents, to be opened from disk or served by any server:
//
//	site ROOT OUT
//
// It begins at README.md of ROOT and follows the links: each document, each source and each folder
// that a document links to becomes a page at the same path, with the ending .html. So links between
// them need nothing but that ending. The navigation is the lists of docs/README.md. The site loads
// nothing from elsewhere; its search runs in the browser.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed assets
var assets embed.FS

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: site ROOT OUT")
		os.Exit(2)
	}
	s, err := collect(os.Args[1])
	if err == nil {
		err = s.write(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages: %s\n", len(s.pages), filepath.Join(os.Args[2], "index.html"))
}

// site is what the documents of a directory become.
type site struct {
	root   string
	pages  []*page // in the order in which they were found
	images []string
	nav    []group
	byName map[string]*page // by the path of what it shows
}

// group is a heading of the navigation.
type group struct {
	name  string
	pages []*page
}

// collect reads the documents, and what they link to.
func collect(root string) (*site, error) {
	s := &site{root: root, byName: map[string]*page{}}
	names := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(file string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(file) == ".md" {
			file, err = filepath.Rel(root, file)
			names = append(names, filepath.ToSlash(file))
		}
		return err
	})
	for len(names) > 0 && err == nil {
		var next []string
		next, err = s.add(names[0])
		names = append(names[1:], next...)
	}
	if err != nil {
		return nil, err
	}
	return s, s.navigate()
}

// add reads one file or folder, unless it is there, and returns what it links to.
func (s *site) add(name string) ([]string, error) {
	if s.byName[name] != nil || slices.Contains(s.images, name) {
		return nil, nil
	}
	file := filepath.Join(s.root, filepath.FromSlash(name))
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		if _, err := os.Stat(filepath.Join(file, "README.md")); err == nil {
			return []string{path.Join(name, "README.md")}, nil
		}
		p, files, err := folder(name, file)
		s.keep(p)
		return files, err
	case slices.Contains([]string{".png", ".svg"}, path.Ext(name)):
		s.images = append(s.images, name)
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if path.Ext(name) != ".md" {
		s.keep(source(name, text))
		return nil, nil
	}
	p, err := document(name, text, s.isFolder)
	s.keep(p)
	return p.links, err
}

func (s *site) keep(p *page) {
	s.pages = append(s.pages, p)
	s.byName[p.name] = p
}

func (s *site) isFolder(name string) bool {
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(name)))
	return err == nil && info.IsDir()
}

// navigate makes the navigation of the lists of docs/README.md. Each page of docs has to be in one.
func (s *site) navigate() error {
	index := s.byName["docs/README.md"]
	if index == nil {
		return errors.New("there is no docs/README.md to make the navigation of")
	}
	s.nav = []group{{"Start", []*page{s.byName["README.md"], index}}}
	seen := map[*page]bool{s.byName["README.md"]: true, index: true}
	for _, entry := range index.lists {
		p := s.byName[entry.target]
		if p == nil || seen[p] {
			continue
		}
		seen[p] = true
		if last := len(s.nav) - 1; s.nav[last].name == entry.heading {
			s.nav[last].pages = append(s.nav[last].pages, p)
		} else {
			s.nav = append(s.nav, group{entry.heading, []*page{p}})
		}
	}
	for _, p := range s.pages {
		if strings.HasPrefix(p.name, "docs/") && path.Ext(p.name) == ".md" && !seen[p] {
			return fmt.Errorf("no list of docs/README.md has %s, so the navigation has not", p.name)
		}
	}
	return nil
}

// write replaces the site in a directory.
func (s *site) write(dir string) error {
	files := map[string][]byte{}
	for _, p := range s.pages {
		html, err := s.render(p)
		if err != nil {
			return err
		}
		files[p.out] = html
		if path.Ext(p.name) == ".md" {
			files[p.name] = p.text // for language models
		}
	}
	for _, name := range s.images {
		image, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		files[name] = image
	}
	for _, name := range []string{"site.css", "site.js", "icon.svg"} {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		files[name] = text
	}
	var err error
	if files["search.js"], err = s.searched(); err != nil {
		return err
	}
	if err := s.forLanguageModels(files); err != nil {
		return err
	}
	return replace(dir, files)
}

// searched returns what the search looks through: the pages of documents, and their sections.
func (s *site) searched() ([]byte, error) {
	var pages [][]string
	var sections [][]any
	for _, p := range s.pages {
		if len(p.sections) == 0 {
			continue
		}
		for _, part := range p.sections {
			sections = append(sections, []any{len(pages), part.id, part.heading, part.text})
		}
		pages = append(pages, []string{p.out, p.title})
	}
	var b bytes.Buffer
	b.WriteString("searchable(")
	if err := json.NewEncoder(&b).Encode([]any{pages, sections}); err != nil {
		return nil, err
	}
	b.WriteString(")\n")
	return b.Bytes(), nil
}

// forLanguageModels adds the two files, whose place is the root of a site. Those of docs have links
// from there.
func (s *site) forLanguageModels(files map[string][]byte) error {
	link := regexp.MustCompile(`(?m)^(- \[[^\n]*\]\()([^)\n]+)\)$`)
	for _, name := range []string{"llms.txt", "llms-full.txt"} {
		text, err := os.ReadFile(filepath.Join(s.root, "docs", name))
		if err != nil {
			return fmt.Errorf("%w (make docs makes it)", err)
		}
		list, rest, _ := bytes.Cut(text, []byte("\n<!-- "))
		list = link.ReplaceAllFunc(list, func(m []byte) []byte {
			parts := link.FindSubmatch(m)
			return fmt.Appendf(nil, "%s%s)", parts[1], path.Join("docs", string(parts[2])))
		})
		files[name] = list
		if len(rest) > 0 {
			files[name] = slices.Concat(list, []byte("\n<!-- "), rest)
		}
	}
	return nil
}

// replace writes files into a directory, in place of what is there. It removes nothing but a site.
func replace(dir string, files map[string][]byte) error {
	there, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "search.js")); err != nil && len(there) > 0 {
		return fmt.Errorf("%s is neither empty nor a site: name another directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
