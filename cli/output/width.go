package output

import (
	"slices"
	"strings"

	"github.com/rivo/uniseg"
)

// Wrap breaks a text into lines of at most width cells, between words where it can. A width that has no room for
// anything is none.
func Wrap(text string, width int) []string {
	if width < 1 || uniseg.StringWidth(text) <= width {
		return []string{text}
	}
	var lines []string
	line, used := "", 0
	for word := range strings.SplitSeq(text, " ") {
		if n := uniseg.StringWidth(word); used > 0 && used+1+n <= width {
			line, used = line+" "+word, used+1+n
			continue
		}
		if used > 0 {
			lines = append(lines, line)
		}
		for uniseg.StringWidth(word) > width {
			head := prefix(word, width)
			lines = append(lines, head)
			word = word[len(head):]
		}
		line, used = word, uniseg.StringWidth(word)
	}
	return append(lines, line)
}

// prefix is what of a word has room in width cells, at least one character.
func prefix(word string, width int) string {
	n, used := 0, 0
	for g := uniseg.NewGraphemes(word); g.Next(); {
		if used += g.Width(); n > 0 && used > width {
			break
		}
		n += len(g.Str())
	}
	return word[:n]
}

// columnGap is between two columns of a table.
const columnGap = 2

// fitted returns how wide columns are that want these widths, on a terminal of a width; 0: it is not known. The last
// column may be as wide as there is room. Where there is too little, the widest are made narrower.
func fitted(want []int, width int) []int {
	widths := slices.Clone(want)
	for i := range widths {
		if i < len(widths)-1 || width == 0 {
			widths[i] = min(widths[i], cellMax)
		}
	}
	const least = 6
	for width > 0 {
		sum := columnGap * (len(widths) - 1)
		for _, w := range widths {
			sum += w
		}
		at := slices.Index(widths, slices.Max(widths))
		if sum <= width || widths[at] <= least {
			break
		}
		widths[at]--
	}
	return widths
}
