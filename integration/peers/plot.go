package main

import (
	"fmt"
	"html"
	"strings"
)

// The dimensions of a plot, in its own units.
const (
	plotWidth  = 860
	plotLabels = 330 // width of the names
	plotBar    = 18
	plotRow    = 26
	plotHead   = 34
)

// plot draws the rates of a case as bars: Fila's dark, those of systems that acknowledge before the
// sync pale. Any plotting library would be larger than this program.
func (c *caseResult) plot() []byte {
	var b strings.Builder
	most := 0.0
	for i := range c.Systems {
		most = max(most, c.Systems[i].Rate)
	}
	height := plotHead + plotRow*len(c.Systems) + 24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14" fill="#222">%s: messages a second</text>`+"\n", html.EscapeString(c.What))
	for i := range c.Systems {
		o := &c.Systems[i]
		y := plotHead + i*plotRow
		colour := "#4a7fb5"
		switch {
		case o.ID == "fila":
			colour = "#c2410c"
		case !o.Synced:
			colour = "#b9cfe4"
		}
		width := o.Rate / most * (plotWidth - plotLabels - 80)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#222">%s</text>`, plotLabels-8, y+13, html.EscapeString(o.Name+", "+o.Settings))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, plotLabels, y, width, plotBar, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#222">%.0f</text>`+"\n", plotLabels+width+6, y+13, o.Rate)
	}
	fmt.Fprintf(&b, `<text x="8" y="%d" fill="#666" font-size="11">pale: what is acknowledged is not yet on disk</text>`+"\n</svg>\n", height-8)
	return []byte(b.String())
}
