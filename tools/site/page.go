package main

import (
	"bytes"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tasks "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// page is a document, a source or a folder that the site shows. Paths are relative to the root, with
// slashes.
type page struct {
	name, out string // what it shows, and where it is in the site
	title     string
	text      []byte        // of the file
	body      template.HTML // with links that hold from out
	links     []string      // what it links to
	sections  []section     // of a document, for the search
	lists     []entry       // links of lists
}

// section is what is below a heading, up to the next one.
type section struct {
	id, heading, text string
	level             int
}

// entry is a link of a list, with the heading of the second level above it.
type entry struct{ heading, target string }

// outOf returns where a file or folder is shown.
func outOf(name string, isFolder bool) string {
	switch {
	case isFolder:
		return path.Join(name, "index.html")
	case path.Base(name) == "README.md":
		return path.Join(path.Dir(name), "index.html")
	case path.Ext(name) == ".md":
		return strings.TrimSuffix(name, ".md") + ".html"
	case path.Ext(name) == ".png", path.Ext(name) == ".svg":
		return name
	}
	return name + ".html"
}

// relative returns the path of a target from the folder of a page.
func relative(from, target string) string {
	r, err := filepath.Rel(filepath.FromSlash(path.Dir(from)), filepath.FromSlash(target))
	if err != nil {
		panic(err) // both are relative to the root
	}
	return filepath.ToSlash(r)
}

// source is the page of a file that is no document.
func source(name string, text []byte) *page {
	return &page{name: name, out: outOf(name, false), title: name, text: text,
		body: template.HTML("<h1>" + template.HTMLEscapeString(name) + "</h1>" + code("source", lexerOf("", name), string(text)))}
}

// folder is the page of a folder without a README: its files.
func folder(name, dir string) (*page, []string, error) {
	p := &page{name: name, out: outOf(name, true), title: name}
	var list strings.Builder
	fmt.Fprintf(&list, "<h1>%s</h1><ul>", template.HTMLEscapeString(name))
	found, err := os.ReadDir(dir)
	if err != nil {
		return p, nil, err
	}
	for _, f := range found {
		if f.IsDir() || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		file := path.Join(name, f.Name())
		p.links = append(p.links, file)
		fmt.Fprintf(&list, `<li><a href="%s">%s</a></li>`, template.HTMLEscapeString(relative(p.out, outOf(file, false))), template.HTMLEscapeString(f.Name()))
	}
	list.WriteString("</ul>")
	p.body = template.HTML(list.String())
	return p, p.links, nil
}

// document is the page of a document.
func document(name string, markdown []byte, isFolder func(string) bool) (*page, error) {
	p := &page{name: name, out: outOf(name, false), title: name, text: markdown}
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 1))))
	tree := md.Parser().Parse(text.NewReader(markdown), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{}))))
	if err := ast.Walk(tree, p.visit(markdown, isFolder)); err != nil {
		return p, err
	}
	var b bytes.Buffer
	err := md.Renderer().Render(&b, markdown, tree)
	p.body = template.HTML(accessible.Replace(withoutHeads.ReplaceAllString(b.String(), "<table>")))
	return p, err
}

// withoutHeads finds the heads of tables that have none, which are rows of empty cells in the source.
var withoutHeads = regexp.MustCompile(`<table>\s*<thead>\s*<tr>\s*(<th[^>]*></th>\s*)+</tr>\s*</thead>`)

// accessible makes no heading of an empty cell.
var accessible = strings.NewReplacer("<th></th>", "<td></td>")

// visit makes links hold in the site, and collects sections, links and lists.
func (p *page) visit(markdown []byte, isFolder func(string) bool) ast.Walker {
	group, items := "", 0
	return func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if _, ok := n.(*ast.ListItem); ok {
				items--
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			heading := plain(n, markdown)
			id, _ := n.AttributeString("id")
			p.sections = append(p.sections, section{id: string(id.([]byte)), heading: heading, level: n.Level})
			if n.Level == 1 {
				p.title = heading
			} else if n.Level == 2 {
				group = heading
			}
			return ast.WalkContinue, nil
		case *ast.ListItem:
			items++
		case *ast.Link:
			if target := p.link(&n.Destination, isFolder); target != "" && items > 0 {
				p.lists = append(p.lists, entry{group, target})
			}
		case *ast.Image:
			p.link(&n.Destination, isFolder)
		}
		if len(p.sections) > 0 && n.Type() == ast.TypeBlock {
			last := &p.sections[len(p.sections)-1]
			if own := ownText(n, markdown); own != "" {
				last.text = strings.TrimSpace(last.text + " " + own)
			}
		}
		return ast.WalkContinue, nil
	}
}

// link makes a link hold from where the page is in the site, and returns the file that it leads to.
func (p *page) link(destination *[]byte, isFolder func(string) bool) string {
	file, fragment, _ := strings.Cut(string(*destination), "#")
	if file == "" || strings.Contains(file, ":") {
		return ""
	}
	target := path.Join(path.Dir(p.name), file)
	p.links = append(p.links, target)
	to := relative(p.out, outOf(target, isFolder(target)))
	if fragment != "" {
		to += "#" + fragment
	}
	*destination = []byte(to)
	return target
}

// ownText returns the text of a block that has lines or inlines of its own, and "" for one that only
// has other blocks in it.
func ownText(n ast.Node, markdown []byte) string {
	if n.Kind() == ast.KindHeading || n.Kind() == ast.KindHTMLBlock {
		return ""
	}
	if code, ok := n.(interface{ IsRaw() bool }); ok && code.IsRaw() {
		return strings.Join(strings.Fields(string(n.Lines().Value(markdown))), " ")
	}
	if n.FirstChild() == nil || n.FirstChild().Type() != ast.TypeInline {
		return ""
	}
	return plain(n, markdown)
}

// plain returns the text of the inlines of a block.
func plain(n ast.Node, markdown []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(markdown))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// anchors gives headings the fragments that they have on the usual hosts of source code, which is
// what the documents link to.
type anchors struct{ used []string }

var linked = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	title := linked.ReplaceAllString(strings.TrimSpace(string(value)), "$1")
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
	unique := slug
	for n := 1; a.has(unique); n++ {
		unique = fmt.Sprintf("%s-%d", slug, n)
	}
	a.used = append(a.used, unique)
	return []byte(unique)
}

func (a *anchors) Put(value []byte) { a.used = append(a.used, string(value)) }

func (a *anchors) has(slug string) bool {
	for _, u := range a.used {
		if u == slug {
			return true
		}
	}
	return false
}

// nodes renders each heading with a link to itself, the boxes of a checklist as text, and blocks of code.
type nodes struct{}

func (nodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(tasks.KindTaskCheckBox, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, err := w.WriteString("☐ ")
			return ast.WalkContinue, err
		}
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindFencedCodeBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		language := string(n.(*ast.FencedCodeBlock).Language(source))
		_, err := w.WriteString(code(language, lexerOf(language, ""), string(n.Lines().Value(source))))
		return ast.WalkSkipChildren, err
	})
	r.Register(ast.KindCodeBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		_, err := w.WriteString(code("", nil, string(n.Lines().Value(source))))
		return ast.WalkSkipChildren, err
	})
	r.Register(ast.KindHeading, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		level, id := n.(*ast.Heading).Level, ""
		if v, ok := n.AttributeString("id"); ok {
			id = template.HTMLEscapeString(string(v.([]byte)))
		}
		var err error
		if entering {
			_, err = fmt.Fprintf(w, `<h%d id="%s">`, level, id)
		} else {
			_, err = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to this section">#</a></h%d>`+"\n", id, level)
		}
		return ast.WalkContinue, err
	})
}

// item is a link in the frame of a page.
type item struct {
	Title, Href string
	Current     bool
	Level       int // of a heading in the contents of the page
}

// render returns the whole page: what the document says, with the navigation on its left, its contents on its right, and
// the documents before and after it below.
func (s *site) render(p *page) ([]byte, error) {
	type heading struct {
		Name  string
		Items []item
		Open  bool
	}
	var nav []heading
	var order []*page
	for _, g := range s.nav {
		h := heading{Name: g.name}
		for _, q := range g.pages {
			h.Items = append(h.Items, item{Title: q.title, Href: relative(p.out, q.out), Current: q == p})
			h.Open = h.Open || q == p
			order = append(order, q)
		}
		nav = append(nav, h)
	}
	beside := func(step int) *item {
		at := slices.Index(order, p)
		if at < 0 || at+step < 0 || at+step >= len(order) {
			return nil
		}
		q := order[at+step]
		return &item{Title: q.title, Href: relative(p.out, q.out)}
	}
	var toc []item
	for _, part := range p.sections {
		if part.level == 2 || part.level == 3 {
			toc = append(toc, item{Title: part.heading, Href: "#" + part.id, Level: part.level})
		}
	}
	if len(toc) < 2 {
		toc = nil // it would repeat the page
	}
	all, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, err
	}
	root := strings.Repeat("../", strings.Count(p.out, "/"))
	var b bytes.Buffer
	err = all.Execute(&b, map[string]any{
		"Title": p.title, "Root": root, "Home": p.name == "README.md", "Nav": nav, "Toc": toc, "Body": p.body, "Source": p.name,
		"Before": beside(-1), "After": beside(1),
	})
	return b.Bytes(), err
}
