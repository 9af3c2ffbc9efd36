package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

// sample is a message to try a hook with, and what the hook should decide.
type sample struct {
	Name        string            `json:"name"`
	Key         string            `json:"key"`
	Weight      int64             `json:"weight"`
	Throttles   []string          `json:"throttles"`
	Budgets     []string          `json:"budgets"`
	Charge      *int64            `json:"charge"`
	MaxAttempts *int64            `json:"max_attempts"`
	BackoffMs   *int64            `json:"backoff_ms"`
	MaxBackoff  *int64            `json:"max_backoff_ms"`
	Headers     map[string]string `json:"headers"`
	PayloadSize int64             `json:"payload_size"`
	Attempt     int64             `json:"attempt"`
	Error       string            `json:"error"`
	Expect      map[string]any    `json:"expect"`
}

// sampleMax is how long a line of samples may be.
const sampleMax = 1 << 20

// readSamples reads a file with a JSON object on each line.
func readSamples(path string) ([]sample, error) {
	body, err := os.ReadFile(path) //nolint:gosec // it is the file that was named
	if err != nil {
		return nil, err
	}
	var all []sample
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, sampleMax)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		s := sample{Name: "line " + strconv.Itoa(n)}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return nil, usagef("%s:%d: %w", path, n, err)
		}
		all = append(all, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, usagef("%s has no samples", path)
	}
	return all, nil
}

// words are the options of FILA.SCRIPT TEST for the sample.
func (s *sample) words() []string {
	var words []string
	for _, o := range []struct{ token, value string }{{"KEY", s.Key}, {"WEIGHT", positive(s.Weight)}, {"PAYLOADSIZE", positive(s.PayloadSize)}, {"ATTEMPT", positive(s.Attempt)}, {"ERROR", s.Error}} {
		if o.value != "" {
			words = append(words, o.token, o.value)
		}
	}
	for _, t := range s.Throttles {
		words = append(words, "THROTTLE", t)
	}
	for _, b := range s.Budgets {
		words = append(words, "BUDGET", b)
	}
	for _, o := range []struct {
		token string
		given *int64
	}{{"CHARGE", s.Charge}, {"MAXATTEMPTS", s.MaxAttempts}, {"BACKOFF", s.BackoffMs}, {"MAXBACKOFF", s.MaxBackoff}} {
		if o.given != nil {
			words = append(words, o.token, strconv.FormatInt(*o.given, 10))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		words = append(words, "HEADER", name, s.Headers[name])
	}
	return words
}

func positive(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// trySample runs a hook with a sample and says how the decision differs from what is expected, ""
// if it does not.
func (c *call) trySample(f hookFile, s sample) (differs string, err error) {
	words := []string{"FILA.SCRIPT", "TEST", f.queue, f.hook}
	if f.source != "" {
		words = append(words, "SOURCE", f.source)
	}
	reply, err := c.do(append(words, s.words()...)...)
	if err != nil {
		if client.Refused(err, "LUA") {
			return err.Error(), nil
		}
		return "", err
	}
	decided, _ := reply.(client.Map)
	for _, name := range slices.Sorted(maps.Keys(s.Expect)) {
		want, err := json.Marshal(s.Expect[name])
		if err != nil {
			return "", err
		}
		if !decided.Has(name) {
			return "", usagef("sample %s expects %s, which %s does not decide", s.Name, name, f.hook)
		}
		if got := string(client.AppendJSON(nil, decided.Get(name))); !sameJSON(got, string(want)) {
			return fmt.Sprintf("%s is %s, not %s", name, got, want), nil
		}
	}
	return "", nil
}

// sameJSON compares two documents; the decoder makes 5 and 5.0 the same.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	p, errP := json.Marshal(x)
	q, errQ := json.Marshal(y)
	return errP == nil && errQ == nil && bytes.Equal(p, q)
}

// testScript runs a hook with a message made of options, or with samples.
func (c *call) testScript() error {
	f := hookFile{queue: c.arg("QUEUE"), hook: c.arg("HOOK")}
	words, err := c.command()
	if err != nil {
		return err
	}
	if c.given("source") {
		source, err := os.ReadFile(c.text("source"))
		if err != nil {
			return usagef("--source: %w", err)
		}
		f.source = string(source)
		words = append(words, "SOURCE", f.source)
	}
	if !c.given("samples") {
		reply, err := c.do(words...)
		if err != nil {
			return err
		}
		return c.show(reply)
	}
	samples, err := readSamples(c.text("samples"))
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("--samples: %w", err)
	}
	if err != nil {
		return err
	}
	return c.testSamples(f, samples)
}

func (c *call) testSamples(f hookFile, samples []sample) error {
	rows := c.rows()
	failed := 0
	for _, s := range samples {
		differs, err := c.trySample(f, s)
		if err != nil {
			rows.Close("")
			return err
		}
		result := "ok"
		if differs != "" {
			result = differs
			failed++
		}
		rows.Add(client.Map{{Name: "sample", Value: s.Name}, {Name: "result", Value: result}})
	}
	rows.Close("")
	if failed > 0 {
		return fmt.Errorf("%d of %d samples differ", failed, len(samples))
	}
	return nil
}

// watchEvery is how often a directory is looked at.
const watchEvery = 300 * time.Millisecond

// watch tries each hook of a directory when it is saved, until it is interrupted.
func (c *call) watch() error {
	dir := c.arg("DIR")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usagef("%s is no directory", dir)
	}
	if err := c.dial(); err != nil {
		return ended(err)
	}
	seen := map[string]string{}
	for tick := time.NewTicker(watchEvery); ; {
		if err := c.watchOnce(dir, seen); err != nil {
			return ended(err)
		}
		select {
		case <-c.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchOnce tries the files that have changed since seen. Its error is that the broker is gone.
func (c *call) watchOnce(dir string, seen map[string]string) error {
	files, err := filepath.Glob(filepath.Join(escapePattern(dir), "*"+scriptEnd))
	if err != nil {
		return err
	}
	for _, path := range files {
		state := saved(path) + saved(strings.TrimSuffix(path, scriptEnd)+samplesEnd)
		if seen[path] == state {
			continue
		}
		seen[path] = state
		result := "passes"
		f, err := readHook(path)
		if err == nil {
			err = c.try(f)
		}
		if err == nil && c.is("push") {
			result = "loaded"
			_, err = c.do("FILA.SCRIPT", "LOAD", f.queue, f.hook, f.source)
		}
		if c.conn.Err() != nil {
			return c.conn.Err()
		}
		if err != nil {
			result = err.Error()
		}
		c.out.Raw(fmt.Sprintf("%s %s: %s", time.Now().In(c.out.Zone).Format(time.TimeOnly), output.Escape(path), output.Escape(oneLine(result))))
		if err := c.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// saved changes when a file is saved.
func saved(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "-"
	}
	return fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), ";")
}
