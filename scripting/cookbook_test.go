package scripting

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// recipe is a script of docs/reference/lua.md with the lines below it.
type recipe struct {
	title, source string
	cases         []string
}

// cookbook reads the recipes out of the document.
func cookbook(t testing.TB) []recipe {
	t.Helper()
	b, err := os.ReadFile("../docs/reference/lua.md")
	if err != nil {
		t.Fatal(err)
	}
	var recipes []recipe
	for _, section := range strings.Split(string(b), "\n### ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		r := recipe{title: title, source: fenced(t, rest, "lua")}
		r.cases = strings.Split(strings.TrimSpace(fenced(t, rest, "text")), "\n")
		recipes = append(recipes, r)
	}
	return recipes
}

func fenced(t testing.TB, s, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(s, "\n```"+language+"\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("no block of %s in\n%s", language, s)
	}
	return block
}

// given builds the message, settings, signals and budgets that the left side of a line describes.
func given(t testing.TB, s string) (*hook.Message, hook.View) {
	t.Helper()
	msg := &hook.Message{Queue: "orders", Key: hook.DefaultKey, Meta: storage.Meta{Weight: 1}, ID: "0190c0de"}
	see := fake{settings: map[string]string{}, signals: map[string]float64{}, budgets: map[string]int64{}}
	for part := range strings.SplitSeq(s, ";") {
		kind, value, _ := strings.Cut(strings.TrimSpace(part), " ")
		name, text, _ := strings.Cut(value, "=")
		number, err := strconv.Atoi(value)
		switch kind {
		case "nothing":
		case "header":
			msg.Headers = append(msg.Headers, storage.Header{Name: []byte(name), Value: []byte(text)})
		case "setting":
			see.settings[name] = text
		case "signal": // subject, name, window
			see.signals[name], err = strconv.ParseFloat(text, 64)
		case "budget": // what is available
			see.budgets[name], err = strconv.ParseInt(text, 10, 64)
		case "throttle":
			msg.Throttles = append(msg.Throttles, value)
		case "key":
			msg.Key = value
		case "id":
			msg.ID = value
		case "error":
			msg.Error = value
		case "payload_size":
			msg.PayloadSize = number
		case "attempts":
			msg.Attempts = uint32(number)
		default:
			err = errors.New("unknown word")
		}
		if err != nil && (kind == "payload_size" || kind == "signal" || kind == "budget" || kind == "attempts" || err.Error() == "unknown word") {
			t.Fatalf("%q: %v", part, err)
		}
	}
	return msg, see
}

// decided writes a decision like the right side of a line.
func decided(trial *hook.Trial, kind hook.Kind) string {
	var parts []string
	add := func(name, value string) { parts = append(parts, name+"="+value) }
	delay := trial.Failure.Delay
	if kind == hook.OnEnqueue {
		d := &trial.Enqueue
		delay = d.Delay
		if d.Key != "" {
			add("fairness_key", d.Key)
		}
		if d.Weight != 0 {
			add("weight", strconv.Itoa(int(d.Weight)))
		}
		if d.Cost != 0 {
			add("cost", strconv.Itoa(int(d.Cost)))
		}
		if d.Throttles != nil {
			add("throttle_keys", cmp.Or(strings.Join(d.Throttles, ","), "none"))
		}
		if d.Budgets != nil {
			add("budgets", cmp.Or(strings.Join(d.Budgets, ","), "none"))
		}
		if d.Charge != nil {
			add("charge", strconv.FormatInt(*d.Charge, 10))
		}
		if d.Priority != nil {
			add("priority", strconv.Itoa(int(*d.Priority)))
		}
	}
	switch trial.Failure.Action {
	case hook.FailureRetry:
		add("action", "retry")
	case hook.FailureDead:
		add("action", "dlq")
	case hook.FailureDefault:
	}
	if delay != nil {
		add("delay_ms", strconv.FormatInt(int64(*delay/time.Millisecond), 10))
	}
	for _, h := range trial.Failure.Holds {
		add("hold "+h.Key, strconv.FormatInt(int64(h.For/time.Millisecond), 10))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " ")
}

func TestTheCookbookDoesWhatItSays(t *testing.T) {
	s := patientSandbox(t, time.Minute)
	recipes := cookbook(t)
	if len(recipes) < 10 {
		t.Fatalf("%d recipes", len(recipes))
	}
	for _, r := range recipes {
		t.Run(r.title, func(t *testing.T) {
			kind := hook.OnEnqueue
			if strings.Contains(r.source, "function on_failure") {
				kind = hook.OnFailure
			}
			h := load(t, s, kind, r.source)
			if len(r.cases) < 2 {
				t.Error("show more than one message")
			}
			for _, c := range r.cases {
				left, right, ok := strings.Cut(c, "→")
				if !ok {
					t.Fatalf("no arrow in %q", c)
				}
				msg, view := given(t, left)
				trial := h.Try(msg, view, hook.Bounds{})
				if got := decided(&trial, kind); trial.Err != nil || got != strings.TrimSpace(right) {
					t.Errorf("%s: %s, %v", c, got, trial.Err)
				}
				// A recipe has to leave room for what users add to it.
				if trial.Memory > 64<<10 || trial.Instructions > 2000 {
					t.Errorf("%s: %d bytes, %d instructions", c, trial.Memory, trial.Instructions)
				}
			}
		})
	}
}

// The document names all of the library, and nothing else.
func TestTheDocumentNamesTheLibrary(t *testing.T) {
	b, err := os.ReadFile("../docs/reference/lua.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(fs map[string]lua.LGFunction, more ...string) string {
		return "`" + strings.Join(slices.Sorted(slices.Values(slices.AppendSeq(more, maps.Keys(fs)))), " ") + "`"
	}
	for _, line := range []string{
		"- " + strings.TrimSuffix(names(baseLibrary()), "`") + " _G _VERSION`\n",
		"- `string.` " + names(stringLibrary()) + ", also as methods",
		"- `table.` " + names(tableLibrary()) + "\n",
		"- `math.` " + names(mathLibrary(), "huge", "pi") + "\n",
	} {
		if !strings.Contains(string(b), line) {
			t.Errorf("this line is not in the document: %s", line)
		}
	}
	for name := range filaLibrary() {
		if !strings.Contains(string(b), "| `fila."+name+"(") {
			t.Errorf("fila.%s is not in the document", name)
		}
	}
}
