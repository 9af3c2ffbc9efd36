package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
)

// Outcomes of a start on a damaged store.
const (
	refusedAtStart      = "refused at start, with the name of the file"
	servedRight         = "served right"
	servedReported      = "served, with MISCONF for what cannot be read"
	servedAsAfterACrash = "served as after a crash: the end of the log is what a crash leaves"
)

// damagedCase is one damaged store.
type damagedCase struct {
	bin    string
	from   *original
	dir    string
	harm   harm
	killed bool // the repair is killed and run again
	// killAfter is the time from the start of the repair to its kill.
	killAfter time.Duration
	outcome   string
	wrong     []string
}

func (c *damagedCase) complain(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// judge starts one damaged copy, and checks and repairs another.
func (c *damagedCase) judge(ctx context.Context) error {
	if err := os.Mkdir(c.dir, 0o750); err != nil {
		return err
	}
	started, err := c.copy("started")
	if err != nil {
		return err
	}
	repaired, err := c.copy("repaired")
	if err != nil {
		return err
	}
	if err := c.start(ctx, started); err != nil {
		return err
	}
	return c.repair(ctx, repaired)
}

// copy creates a damaged copy and a broker for it.
func (c *damagedCase) copy(name string) (*harness.Broker, error) {
	dir := filepath.Join(c.dir, name)
	if err := os.Mkdir(dir, 0o750); err != nil {
		return nil, err
	}
	b, err := harness.New(c.bin, dir, "--storage.reserve_bytes", "0")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(b.Data(), os.DirFS(c.from.data)); err != nil {
		return nil, err
	}
	return b, c.harm.apply(b.Data())
}

// start judges a start on the damaged store.
func (c *damagedCase) start(ctx context.Context, b *harness.Broker) error {
	if err := startUp(ctx, b); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.outcome = refusedAtStart
		if !strings.Contains(err.Error(), c.harm.file) {
			c.complain("the error at start does not name the file: %s", err)
		}
		_ = b.Stop() // the process has exited already
		return nil
	}
	served, whole, err := drain(ctx, b)
	if err := errors.Join(err, b.Kill()); err != nil {
		return err
	}
	for id := range served {
		if c.from.gone[id] && !c.crashed() {
			c.complain("the broker serves %s, which was deleted", id)
		}
		if payload, ok := c.from.payload(id); !ok || payload != served[id] {
			c.complain("the broker serves %s with a payload that was never sent", id)
		}
	}
	switch {
	case !whole:
		c.outcome = servedReported
	case maps.Equal(served, c.from.state):
		c.outcome = servedRight
	case c.crashed() && c.from.was(served):
		c.outcome = servedAsAfterACrash
	default:
		c.complain("the broker serves %d of %d messages and reports no error", len(served), len(c.from.state))
	}
	return nil
}

// crashed reports whether a crash could have left the same damage: the newest log has lost its end.
func (c *damagedCase) crashed() bool {
	logs, err := filepath.Glob(filepath.Join(c.from.data, "*.log"))
	if err != nil || len(logs) == 0 || filepath.Base(logs[len(logs)-1]) != c.harm.file || c.harm.removed {
		return false
	}
	data, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		return false
	}
	// No intact record follows the damage, or the damage is in the header of the last record.
	last := int64(0)
	for _, all := range []map[string][]place{c.from.where, c.from.deleted} {
		for _, places := range all {
			for _, p := range places {
				if p.file == c.harm.file && p.to == int64(len(data)) {
					last = max(last, p.from)
				}
			}
		}
	}
	return c.harm.cut || last > 0 && c.harm.from >= last || c.harm.to == int64(len(data))
}

// payload returns the payload that was sent with a message.
func (o *original) payload(id string) (string, bool) {
	for _, h := range o.history {
		if h.added == id {
			return h.payload, true
		}
	}
	return "", false
}

// was reports whether these were exactly the messages of the store at some moment.
func (o *original) was(served map[string]string) bool {
	there := map[string]bool{}
	same := 0
	for _, h := range o.history {
		if h.added != "" {
			there[h.added] = true
			if _, ok := served[h.added]; ok {
				same++
			}
		}
		for _, id := range h.removed {
			delete(there, id)
			if _, ok := served[id]; ok {
				same--
			}
		}
		if len(there) == len(served) && same == len(served) {
			return true
		}
	}
	return len(served) == 0
}

// repair judges fila check and fila repair.
func (c *damagedCase) repair(ctx context.Context, b *harness.Broker) error {
	text, code, err := c.fila(ctx, "check", b.Data())
	if err != nil {
		return err
	}
	found := code != 0
	if found && !strings.Contains(text, c.harm.file) {
		c.complain("check does not name the file: %s", firstLines(text))
	}
	if !found && c.outcome != servedRight && c.outcome != servedAsAfterACrash {
		c.complain("check finds nothing wrong, but the start was %q", c.outcome)
	}
	if c.killed {
		if err := c.killRepair(ctx, b.Data()); err != nil {
			return err
		}
	}
	text, code, err = c.fila(ctx, "repair", "--json", b.Data())
	if err != nil {
		return err
	}
	var report struct {
		MayReturn int `json:"may_return"` //nolint:tagliatelle // the report's own name
		Kept      string
	}
	if start := strings.Index(text, "{"); code != 0 || start < 0 || json.Unmarshal([]byte(text[start:]), &report) != nil {
		c.complain("repair exits with code %d: %s", code, firstLines(text))
		return nil //nolint:nilerr // reported by complain
	}
	if text, code, err = c.fila(ctx, "check", b.Data()); err != nil || code != 0 {
		c.complain("after the repair check exits with code %d: %s", code, firstLines(text))
	}
	if _, err := os.Stat(b.Data() + "-repairing"); err == nil {
		c.complain("the repair left its working directory behind")
	}
	if err := startUp(ctx, b); err != nil {
		c.complain("after the repair: %s", err)
		_ = b.Stop() // the process has exited already
		return nil
	}
	served, whole, err := drain(ctx, b)
	if err := errors.Join(err, b.Stop()); err != nil {
		return err
	}
	if !whole {
		c.complain("after the repair not all messages can be read")
	}
	c.compare(served, report.MayReturn)
	return nil
}

// compare checks the messages served after a repair against those that were readable before.
func (c *damagedCase) compare(served map[string]string, mayReturn int) {
	returned, lost := 0, 0
	for id, payload := range served {
		if sent, ok := c.from.payload(id); !ok || sent != payload {
			c.complain("after the repair %s has a payload that was never sent", id)
		}
		if !c.from.gone[id] {
			continue
		}
		returned++
		for _, p := range c.from.deleted[id] {
			if !c.harm.hits(p) {
				c.complain("%s is back after the repair; its deletion is in %s from %d to %d, which is intact", id, p.file, p.from, p.to)
				break
			}
		}
	}
	for id := range c.from.state {
		if _, ok := served[id]; ok {
			continue
		}
		lost++
		for _, p := range c.from.where[id] {
			if !c.harm.hits(p) {
				c.complain("%s is lost in the repair; it is in %s from %d to %d, which is intact", id, p.file, p.from, p.to)
				break
			}
		}
	}
	if returned > mayReturn && !c.crashed() && !c.killed { // the report of a killed repair may be lost
		c.complain("%d deleted messages are back after the repair, but the report says at most %d", returned, mayReturn)
	}
	if c.harm.needless() && returned+lost > 0 {
		c.complain("damage to an unneeded file brought back %d messages and lost %d", returned, lost)
	}
}

// killRepair kills a repair before its end, unless it is too fast.
func (c *damagedCase) killRepair(ctx context.Context, data string) error {
	cmd := exec.CommandContext(ctx, c.bin, "repair", data)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for wanted := (time.Time{}); ; {
		if _, err := os.Stat(data + "-repairing"); err == nil && wanted.IsZero() {
			wanted = time.Now().Add(c.killAfter)
		}
		select {
		case <-ended: // the next run checks the exit code
			return nil
		case <-time.After(time.Millisecond):
		}
		if !wanted.IsZero() && time.Now().After(wanted) {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			<-ended
			return nil
		}
	}
}

// fila runs the binary.
func (c *damagedCase) fila(ctx context.Context, args ...string) (text string, code int, err error) {
	cmd := exec.CommandContext(ctx, c.bin, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return "", 0, err
	}
	return out.String(), cmd.ProcessState.ExitCode(), nil
}

func firstLines(text string) string { return text[:min(len(text), 600)] }

// drain reads all messages of a broker. whole is false if a reply was MISCONF.
func drain(ctx context.Context, b *harness.Broker) (served map[string]string, whole bool, err error) {
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 3, ReadTimeout: patience, MaxRetries: -1})
	defer c.Close()
	names, err := c.Do(ctx, "FILA.QUEUE", "LIST").StringSlice()
	if err != nil {
		return nil, false, err
	}
	served, whole = map[string]string{}, true
	for _, q := range names {
		for cursor := "0"; ; {
			page, err := c.Do(ctx, "FILA.BROWSE", q, "CURSOR", cursor, "COUNT", 500).Slice()
			if err != nil && strings.HasPrefix(err.Error(), "MISCONF") {
				whole = false
				break
			}
			if err != nil {
				return nil, false, err
			}
			for _, m := range page[1].([]any) { //nolint:forcetypeassert // the contract guarantees the type
				message := m.(map[any]any) //nolint:forcetypeassert // the contract guarantees the type
				id := fmt.Sprint(message["id"])
				if _, twice := served[id]; twice {
					return nil, false, fmt.Errorf("message %s is listed twice", id)
				}
				served[id] = fmt.Sprint(message["payload"])
			}
			if cursor = fmt.Sprint(page[0]); cursor == "0" {
				break
			}
		}
	}
	return served, whole, nil
}
