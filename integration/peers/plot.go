package main

import (
	"fmt"
	"html"
	"math"
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

// plotted returns what the plot of a case shows of a system, and how it is written: the rate, or the
// latency at a rate that is given.
func (c *caseResult) plotted(o *outcome) (value float64, text string) {
	if c.Rate > 0 {
		return o.P50, fmt.Sprintf("%.2f", o.P50)
	}
	return o.Rate, fmt.Sprintf("%.0f", o.Rate)
}

// plot draws the systems of a case as bars: Fila's dark, those of systems that acknowledge before the
// sync pale. Any plotting library would be larger than this program.
func (c *caseResult) plot() []byte {
	var b strings.Builder
	most, unit := 0.0, "messages a second"
	if c.Rate > 0 {
		unit = "ms until delivery, median"
	}
	for i := range c.Systems {
		value, _ := c.plotted(&c.Systems[i])
		most = max(most, value)
	}
	height := plotHead + plotRow*len(c.Systems) + 24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14" fill="#222">%s: %s</text>`+"\n", html.EscapeString(c.What), unit)
	for i := range c.Systems {
		o := &c.Systems[i]
		y := plotHead + i*plotRow
		colour := "#4a7fb5"
		switch {
		case o.ID == c.systems[0]:
			colour = "#c2410c"
		case !o.Synced:
			colour = "#b9cfe4"
		}
		value, text := c.plotted(o)
		width := value / max(most, math.SmallestNonzeroFloat64) * (plotWidth - plotLabels - 80)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#222">%s</text>`, plotLabels-8, y+13, html.EscapeString(o.Name+", "+o.Settings))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, plotLabels, y, width, plotBar, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#222">%s</text>`+"\n", plotLabels+width+6, y+13, text)
	}
	fmt.Fprintf(&b, `<text x="8" y="%d" fill="#666" font-size="11">pale: what is acknowledged is not yet on disk</text>`+"\n</svg>\n", height-8)
	return []byte(b.String())
}
