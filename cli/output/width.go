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
//
// Columns whose least width is what they want stay whole where cutting the others is enough; no other gets below 6.
func fitted(want, whole []int, width int) []int {
	widths := slices.Clone(want)
	for i := range widths {
		if i < len(widths)-1 || width == 0 {
			widths[i] = min(widths[i], cellMax)
		}
	}
	const least = 6
	for _, floors := range [][]int{whole, make([]int, len(want))} {
		for over := width > 0; over; {
			sum, at := columnGap*(len(widths)-1), -1
			for i, w := range widths {
				sum += w
				if w > max(least, floors[i]) && (at < 0 || w > widths[at]) {
					at = i
				}
			}
			if over = sum > width && at >= 0; over {
				widths[at]--
			}
		}
	}
	return widths
}

// legible says whether columns have room on a terminal of a width, those that stay whole as they are and none of the
// others cut below cellLeast.
func legible(want, whole []int, width int) bool {
	sum := columnGap * (len(want) - 1)
	for i, w := range want {
		sum += max(whole[i], min(w, cellLeast))
	}
	return width == 0 || sum <= width
}
