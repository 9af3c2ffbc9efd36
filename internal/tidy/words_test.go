package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The vocabulary of the project is docs/reference/glossary.md. This file refuses words that it has
// retired: in identifiers, comments and texts of Go, in comments of C++, and in documents.

// vocabularyFolders are the folders and files that the rule covers, subfolders included. Add
// a folder by one line once it is clean.
func vocabularyFolders() []string {
	return []string{
		"ARCHITECTURE.md",
		"CONTRIBUTING.md",
		"README.md",
		"SECURITY.md",
		"cli",
		"commands",
		"docs",
		"engine",
		"integration",
		"internal",
		"resp",
		"scripting",
		"storage",
	}
}

// vocabularyExempt are files in these folders that may contain retired words: this one, and
// the generated reference of settings, whose texts are in cli.
func vocabularyExempt() []string {
	return []string{"internal/tidy/words_test.go", "docs/reference/configuration.md"}
}

// retired is a set of words or phrases that are no longer used, separated by "|", and what
// replaces them. They are in lower case and match whole words, regardless of case.
type retired struct{ words, use string }

// retiredIdentifiers are matched with whole identifiers where these are declared.
func retiredIdentifiers() []retired {
	return []retired{
		{"beside|besides", "off-loop job"},
		{"company", "batch linger"},
		{"told|taketold|tellable|teller", "early reply, notify or completed"},
		{"remains", "detached"},
		{"past", "idle-key statistics"},
		{"hungry|starving|starved|vain", "prefetch, urgent, awaiting read, empty read"},
		{"obituary|mourned|dying|bury|endlife", "dead-letter, expire"},
		{"outlived", "message expired"},
		{"stranger|strangers|strangersmax|estranged|meet", "unauthenticated, markAuthenticated"},
		{"lookahead|foresight", "prefetch"},
		{"foresee|foreseer", "preflight"},
		{"lag|lagged", "deferred lease write"},
		{"luck", "hit score"},
		{"giveway|makeway", "yield"},
		{"somehow|giveback|worthtrying", "a verb for what it does, such as release or canOpen"},
		{"maytakethedead|takesthedead", "canBecomeDLQ, makeDLQ"},
	}
}

// retiredWords are matched in comments, texts and documents.
func retiredWords() []retired {
	return []retired{
		{"whoever|whomever|somebody|someone|nobody|everybody|everyone|anybody", "the component: client, task, goroutine, caller"},
		{"stranger|strangers|estranged", "unauthenticated connection"},
		{"obituary|mourned", "dead-letter"},
		{"foresight|foresee|foresees|foreseer", "prefetch or preflight"},
		{"give way|gives way|giving way|gave way|make way|makes way|making way", "yield"},
		{"worth nothing", "invalid"},
		{"bears it|is borne", "tolerate"},
		{"without a word", "silently"},
		{"for want of", "for lack of"},
		{"so many bytes", "n bytes"},
		{"made anew|begun anew|start anew|starts anew|run anew|runs anew", "recreate, restart"},
		{"to its word|holds it to|hold it to|holds them to|hold them to", "verify"},
		{"mend|mends|mended|mending", "fix or repair"},
		{"hear of|hears of", "subscribe to, be notified"},
	}
}

// vocabulary finds retired words: it maps each to its replacement. longest is the number of
// words in the longest phrase.
type vocabulary struct {
	use     map[string]string
	longest int
}

func newVocabulary(table []retired) vocabulary {
	v := vocabulary{use: map[string]string{}}
	for _, r := range table {
		for w := range strings.SplitSeq(r.words, "|") {
			v.use[w] = r.use
			v.longest = max(v.longest, strings.Count(w, " ")+1)
		}
	}
	return v
}

// complain returns a complaint for each retired word in a text that begins at a line. Words
// of a phrase may be on different lines of a comment.
func (v vocabulary) complain(name string, first int, text string) []string {
	var complaints []string
	var last []string // the preceding words
	for n, line := range strings.Split(strings.ToLower(text), "\n") {
		for _, w := range strings.FieldsFunc(line, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_'", r)
		}) {
			last = append(last, w)
			last = last[max(0, len(last)-v.longest):]
			for from := range last {
				phrase := strings.Join(last[from:], " ")
				if use, ok := v.use[phrase]; ok {
					complaints = append(complaints, fmt.Sprintf("%s:%d: %q is retired: use %s", name, first+n, phrase, use))
				}
			}
		}
	}
	return complaints
}

// wordsIn returns the complaints about a text that begins at a line of a file.
func wordsIn(name string, first int, text string) []string {
	return newVocabulary(retiredWords()).complain(name, first, text)
}

// wordsOf returns the complaints about a Go file: its identifiers where they are declared,
// its comments, and its texts but for import paths and struct tags.
func wordsOf(s source) []string {
	words, names := newVocabulary(retiredWords()), newVocabulary(retiredIdentifiers())
	var complaints []string
	line := func(p token.Pos) int { return s.set.Position(p).Line }
	for _, group := range s.file.Comments {
		var lines []string // of the comment group, which are adjacent
		for _, c := range group.List {
			lines = append(lines, c.Text)
		}
		complaints = append(complaints, words.complain(s.path, line(group.Pos()), strings.Join(lines, "\n"))...)
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING && !s.test() {
				complaints = append(complaints, words.complain(s.path, line(n.Pos()), n.Value)...)
			}
		}
		for _, id := range declared(n) {
			if use, ok := names.use[strings.ToLower(id.Name)]; ok {
				complaints = append(complaints,
					fmt.Sprintf("%s:%d: the identifier %s is retired: use %s", s.path, line(id.Pos()), id.Name, use))
			}
		}
		return true
	})
	return complaints
}

// declared returns the identifiers that a node declares.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		var ids []*ast.Ident
		for _, e := range n.Lhs {
			if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
				ids = append(ids, id)
			}
		}
		return ids
	}
	return nil
}

// covered reports whether the rule covers a file.
func covered(name string) bool {
	if slices.Contains(vocabularyExempt(), name) || strings.Contains(name, "/testdata/") {
		return false
	}
	return slices.ContainsFunc(vocabularyFolders(), func(f string) bool {
		return name == f || strings.HasPrefix(name, f+"/")
	})
}

func TestRetiredWordsAreNotUsed(t *testing.T) {
	seen := map[string]int{}
	note := func(name string) {
		for _, f := range vocabularyFolders() {
			if name == f || strings.HasPrefix(name, f+"/") {
				seen[f]++
			}
		}
	}
	for _, s := range sources(t) {
		if covered(s.path) {
			note(s.path)
			report(t, wordsOf(s))
		}
	}
	for _, name := range tracked(t) {
		if !covered(name) || !slices.Contains([]string{".md", ".cc", ".h", ".proto"}, path.Ext(name)) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		note(name)
		report(t, wordsIn(name, 1, string(text)))
	}
	for _, f := range vocabularyFolders() {
		if seen[f] == 0 {
			t.Errorf("%s: the rule has seen no file of it", f)
		}
	}
}

func TestTheRuleAboutWordsSeesABreach(t *testing.T) {
	wantBreach(t, wordsIn("x.md", 1, "fine\nas nobody waits\n"), `x.md:2: "nobody" is retired`)
	wantBreach(t, wordsIn("x.md", 1, "It Gives Way."), `"gives way" is retired: use yield`)
	wantBreach(t, wordsOf(parse(t, "x.go", "package x\n\n// f asks somebody.\nfunc f() {}\n")), `x.go:3: "somebody"`)
	wantBreach(t, wordsOf(parse(t, "x.go", "package x\n\nfunc f() error {\n\treturn errors.New(\"whoever it is\")\n}\n")), "x.go:4")
	wantBreach(t, wordsOf(parse(t, "x.go", "package x\n\ntype T struct{ told bool }\n")), "the identifier told is retired")
	wantBreach(t, wordsOf(parse(t, "x.go", "package x\n\nfunc f() { luck := 1; _ = luck }\n")), "use hit score")
	for _, text := range []string{"package x\n\nimport \"somebody/nobody\"\n", "package x\n\n// f is nobody-proof and untold.\nfunc unluckily() {}\n"} {
		if c := wordsOf(parse(t, "x.go", text)); c != nil {
			t.Error(c)
		}
	}
	if !covered("docs/a.md") || !covered("README.md") || covered("docs/reference/configuration.md") || covered("documents/a.md") {
		t.Error("the folders of the rule are not those of its table")
	}
}
