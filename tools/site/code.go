package main

import (
	"fmt"
	"html/template"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
)

// code returns a block of code, with its parts in classes that site.css colours. The keyboard can scroll it. Blocks of
// sessions tell commands from replies, so that only commands are copied, and a drawing is made as small as its
// place needs. The lexer is that of the language, or nil.
func code(language string, lexer chroma.Lexer, text string) string {
	classes, columns := "", ""
	if language != "" {
		classes = fmt.Sprintf(` class="language-%s"`, template.HTMLEscapeString(language))
	}
	if strings.ContainsAny(text, "│─►▼") {
		columns = fmt.Sprintf(` class="drawing" style="--columns:%d"`, widest(text))
	}
	return fmt.Sprintf("<div class=\"code\"><pre tabindex=\"0\"%s><code%s>%s</code></pre></div>\n", columns, classes, coloured(language, lexer, text))
}

// coloured returns the text of a block as HTML.
func coloured(language string, lexer chroma.Lexer, text string) string {
	switch {
	case slices.Contains([]string{"console", "redis-cli", "text", ""}, language):
		return session(text)
	case lexer == nil:
		return template.HTMLEscapeString(text)
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, text)
	if err != nil {
		return template.HTMLEscapeString(text)
	}
	var b strings.Builder
	if err := html.New(html.WithClasses(true), html.PreventSurroundingPre(true)).Format(&b, styles.Fallback, tokens); err != nil {
		return template.HTMLEscapeString(text)
	}
	return b.String()
}

// prompts are what commands of a session follow.
func prompts() []string { return []string{"127.0.0.1:5555> ", "> ", "$ "} }

// session marks the commands of a session.
func session(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		rest := line
		for _, p := range prompts() {
			if after, is := strings.CutPrefix(line, p); is {
				fmt.Fprintf(&b, `<span class="gp">%s</span><span class="command">%s</span>`, template.HTMLEscapeString(p), template.HTMLEscapeString(strings.TrimSuffix(after, "\n")))
				rest = "\n"
				break
			}
		}
		b.WriteString(template.HTMLEscapeString(rest))
	}
	return b.String()
}

// widest returns the columns of the longest line.
func widest(text string) (columns int) {
	for line := range strings.Lines(text) {
		columns = max(columns, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return columns
}

// lexerOf returns the lexer of a language or, if it is empty, of a file; nil: it has none.
func lexerOf(language, file string) chroma.Lexer {
	if language != "" {
		return lexers.Get(language)
	}
	return lexers.Match(path.Base(file))
}
