package top

import (
	"fmt"
	"strings"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

// Model is the state of the live view: figures, and how they are looked at. Its methods are
// functions of that state, without a terminal and without a broker.
type Model struct {
	View
	Figures *Figures // nil before the first sample
	Queue   string   // what to ask for: the keys of a queue, or all queues
	Fixed   bool     // the queue was named on the command line: there is no way back to all
	Ended   bool
}

// Want is what a key press asks for.
type Want int

// The wants.
const (
	Nothing Want = iota
	Sample       // ask the broker now
	Explain      // ask about the selected key
)

// Press handles a key, by the name that bubbletea gives it, and the text that it types.
func (m *Model) Press(key, text string) Want {
	if m.Typing {
		m.typed(key, text)
		return Nothing
	}
	switch key {
	case "q", "ctrl+c":
		m.Ended = true
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.Height)
	case "pgdown":
		m.move(m.Height)
	case "home", "g":
		m.Selected = 0
	case "end", "G":
		m.move(1 << 30)
	case "s":
		m.Sort = (m.Sort + 1) % len(columnsOf(m.Queue))
	case "S":
		m.Sort = (m.Sort + len(columnsOf(m.Queue)) - 1) % len(columnsOf(m.Queue))
	case "/":
		m.Typing = true
	case "p", "space":
		m.Paused = !m.Paused
		if !m.Paused {
			return Sample
		}
	case "esc", "backspace", "left":
		return m.back()
	case "enter", "right":
		return m.enter()
	}
	return Nothing
}

func (m *Model) typed(key, text string) {
	switch key {
	case "enter":
		m.Typing = false
	case "esc", "ctrl+c":
		m.Typing, m.Filter = false, ""
	case "backspace":
		r := []rune(m.Filter)
		m.Filter = string(r[:max(0, len(r)-1)])
	default:
		const longest = 100
		if len(m.Filter)+len(text) <= longest {
			m.Filter += text
		}
	}
	m.Selected = 0
}

func (m *Model) move(by int) {
	m.Selected = max(0, min(m.Selected+by, m.count()-1))
}

func (m *Model) count() int {
	if m.Figures == nil {
		return 0
	}
	return len(Shown(m.Figures, &m.View))
}

// back leaves the explanation, then the filter, then the keys of a queue.
func (m *Model) back() Want {
	switch {
	case len(m.Detail) > 0:
		m.Detail = nil
	case m.Filter != "":
		m.Filter = ""
	case m.Queue != "" && !m.Fixed:
		return m.open("")
	}
	return Nothing
}

// enter opens the selected queue, or explains the selected key.
func (m *Model) enter() Want {
	name, ok := m.Chosen()
	switch {
	case !ok || len(m.Detail) > 0:
		return Nothing
	case m.Queue == "":
		return m.open(name)
	}
	return Explain
}

func (m *Model) open(queue string) Want {
	m.Queue, m.Selected, m.Filter, m.Paused, m.Figures = queue, 0, "", false, nil
	m.Sort = DefaultSort(queue)
	return Sample
}

// DefaultSort is the column by which a view is sorted at first: what is ready, or how deep a key is.
func DefaultSort(string) int { return 1 }

// Chosen is the name of the selected item.
func (m *Model) Chosen() (string, bool) {
	if m.Figures == nil || m.Figures.Queue != m.Queue {
		return "", false
	}
	items := Shown(m.Figures, &m.View)
	if m.Selected >= len(items) {
		return "", false
	}
	return items[m.Selected].Name(), true
}

// Take shows new figures, unless they are of what is no longer looked at.
func (m *Model) Take(f *Figures) {
	if f.Queue != m.Queue || m.Paused {
		return
	}
	chosen, ok := m.Chosen()
	m.Figures, m.Trouble = f, ""
	if ok { // the selection stays with its item
		for n, i := range Shown(f, &m.View) {
			if i.Name() == chosen {
				m.Selected = n
			}
		}
	}
	m.move(0)
}

// Explained shows why a key is where it is.
func (m *Model) Explained(key string, explanation client.Map, err error) {
	if err != nil {
		m.Trouble = err.Error()
		return
	}
	m.Trouble = ""
	p := output.New(nil, output.Options{Form: output.Table, Zone: m.Zone})
	m.Detail = []string{m.strong("why " + output.Escape(key) + " is where it is"), "", explanation.Text("state") + ": " + output.Escape(explanation.Text("reason")), ""}
	for _, f := range explanation {
		if text := p.Human(f.Name, f.Value); f.Name != "state" && f.Name != "reason" && text != "-" {
			m.Detail = append(m.Detail, fmt.Sprintf("%-14s %s", f.Name, text))
		}
	}
}

// Failed shows why there are no new figures.
func (m *Model) Failed(err error) { m.Trouble = "trying again: " + err.Error() }

// Render is the screen.
func (m *Model) Render() string {
	if m.Width <= 0 || m.Height <= 0 {
		return ""
	}
	if m.Figures == nil {
		waiting := "asking the broker"
		if m.Trouble != "" {
			waiting = output.Escape(m.Trouble)
		}
		return strings.Join(m.fit([]string{waiting}, []string{"q quit"}), "\n")
	}
	return strings.Join(Picture(m.Figures, &m.View), "\n")
}
