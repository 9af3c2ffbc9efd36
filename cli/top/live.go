package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/faisca/fila/internal/client"
)

// Live shows the model on a terminal until q is pressed or ctx ends.
func Live(ctx context.Context, m *Model, s *Sampler, every time.Duration, in io.Reader, out io.Writer) error {
	m.View.Live = true
	p := tea.NewProgram(&screen{Model: m, sampler: s, every: every, ctx: ctx}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		err = nil // it was interrupted
	}
	return err
}

// screen is the model as bubbletea runs it. One question to the broker is under way at a time,
// since they share the sampler.
type screen struct {
	*Model
	sampler *Sampler
	every   time.Duration
	ctx     context.Context //nolint:containedctx // of the program
	asking  bool
	ticking bool
	next    func() tea.Msg // what is asked when the answer is there
}

type (
	sampled   struct{ figures *Figures }
	explained struct {
		key   string
		why   client.Map
		error error
	}
	failed struct{ error }
	tick   struct{}
)

// Init asks for the first sample.
func (s *screen) Init() tea.Cmd { return s.ask(s.sample()) }

// View is the screen.
func (s *screen) View() tea.View {
	v := tea.NewView(s.Render())
	v.AltScreen = true
	return v
}

// Update handles what has happened.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	then := s.update(msg)
	return s, then
}

// update returns what is to be done next.
func (s *screen) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.Width, s.Height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return s.press(msg)
	case sampled:
		s.Take(msg.figures)
		return s.answered(s.later())
	case failed:
		s.Failed(msg.error)
		return s.answered(s.later())
	case explained:
		s.Explained(msg.key, msg.why, msg.error)
		return s.answered(nil)
	case tick:
		s.ticking = false
		if s.Paused {
			return s.later()
		}
		return s.ask(s.sample())
	}
	return nil
}

func (s *screen) press(msg tea.KeyPressMsg) tea.Cmd {
	want := s.Press(msg.String(), msg.Text)
	switch {
	case s.Ended:
		return tea.Quit
	case want == Sample:
		return s.ask(s.sample())
	case want == Explain:
		key, _ := s.Chosen()
		queue := s.Queue
		return s.ask(func() tea.Msg {
			why, err := s.sampler.Explain(s.ctx, queue, key)
			return explained{key, why, err}
		})
	}
	return nil
}

// sample asks for what is looked at now.
func (s *screen) sample() func() tea.Msg {
	queue := s.Queue
	return func() tea.Msg {
		f, err := s.sampler.Sample(s.ctx, queue)
		if err != nil {
			return failed{err}
		}
		return sampled{f}
	}
}

// ask asks the broker, or notes what is to be asked after the answer that is awaited.
func (s *screen) ask(question func() tea.Msg) tea.Cmd {
	if s.asking {
		s.next = question
		return nil
	}
	s.asking = true
	return question
}

// answered asks what was noted, or goes on with then.
func (s *screen) answered(then tea.Cmd) tea.Cmd {
	s.asking = false
	if question := s.next; question != nil {
		s.next = nil
		return tea.Batch(s.ask(question), then)
	}
	return then
}

// later asks again after a while. One tick is under way at a time.
func (s *screen) later() tea.Cmd {
	if s.ticking {
		return nil
	}
	s.ticking = true
	return tea.Tick(s.every, func(time.Time) tea.Msg { return tick{} })
}
