package dashboard

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

var (
	watchRounds = flag.Int("rounds", 1, "rounds of TestOtherClientsDoNotWaitForWhatWatches, each without and with what watches")
	watchTime   = flag.Duration("watch", 3*time.Second, "how long each half of such a round takes")
	strict      = flag.Bool("strict", false, "fail if another client waits longer than it may, which needs a machine that does nothing else")
)

// The most that another client may wait for what watches the broker, and the most that 99 % of the
// turns of the broker may take meanwhile.
const (
	waitMax = 10 * time.Millisecond
	turnMax = time.Millisecond
)

// probe is another client: it enqueues, leases and acks a message again and again.
type probe struct{ times []time.Duration }

// during runs the client while act runs.
func (p *probe) during(b *broker, act func()) {
	b.t.Helper()
	c := b.dial("", "")
	defer c.Close()
	timed := func(words ...string) any {
		began := time.Now()
		reply, err := c.Do(b.t.Context(), words...)
		if p.times = append(p.times, time.Since(began)); err != nil {
			b.t.Errorf("%q: %v", words, err)
		}
		return reply
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for !b.t.Failed() {
			select {
			case <-over:
				return
			case <-time.After(200 * time.Microsecond):
			}
			timed("FILA.ENQUEUE", "probed", "hello")
			messages, _ := timed("FILA.LEASE", "probed").([]any)
			if len(messages) != 1 {
				b.t.Errorf("leased %v", messages)
				return
			}
			message, _ := messages[0].([]any)
			timed("FILA.ACK", "probed", fmt.Sprint(message[0]))
		}
	}()
	act()
	close(over)
	<-ended
}

// pass lets time pass in which something else is measured.
func pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
}

// at returns how long a part of the commands took at most.
func (p *probe) at(part float64) time.Duration {
	slices.Sort(p.times)
	return p.times[int(float64(len(p.times)-1)*part)].Round(10 * time.Microsecond)
}

func (p *probe) String() string {
	return fmt.Sprintf("median %s, p99 %s, p99.99 %s, longest %s of %d", p.at(0.5), p.at(0.99), p.at(0.9999), p.at(1), len(p.times))
}

// turns returns how many turns of the broker took up to each duration in seconds.
func (b *broker) turns() map[float64]float64 {
	b.t.Helper()
	r, err := http.Get(b.url + "metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	all := map[float64]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), `fila_engine_turn_seconds_bucket{le="`)
		bound, count, cut := strings.Cut(rest, `"} `)
		le, leErr := strconv.ParseFloat(bound, 64)
		n, nErr := strconv.ParseFloat(count, 64)
		if ok && cut && leErr == nil && nErr == nil {
			all[le] = n
		}
	}
	return all
}

// top runs fila top until the context ends, and counts its pictures.
func (b *broker) top(ctx context.Context, pictures *atomic.Int64, queue ...string) {
	cmd := exec.CommandContext(ctx, kit.Binary(b.t), append([]string{"top", "--batch", "--url", "fila://" + b.Addr()}, queue...)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Error(err)
		return
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "fila top") {
			pictures.Add(1)
		}
	}
	_ = cmd.Wait() // it was killed
}

// scrape asks for the metrics each second until the context ends.
func (b *broker) scrape(ctx context.Context, scrapes *atomic.Int64) {
	for ; ctx.Err() == nil; scrapes.Add(1) {
		b.turns()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// watching does act while a dashboard is open at the queues and another at the keys of the large
// queue, the metrics are scraped each second, and fila top shows the queues and the keys.
func (b *broker) watching(tabs []*tab, act func()) {
	b.t.Helper()
	var scrapes, pictures atomic.Int64
	ctx, stop := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	all.Go(func() { b.scrape(ctx, &scrapes) })
	all.Go(func() { b.top(ctx, &pictures) })
	all.Go(func() { b.top(ctx, &pictures, "queue-00000") })
	for i, hash := range []string{"#/", "#/queues/queue-00000"} {
		tabs[i].visit(hash)
		tabs[i].drawn()
		tabs[i].wait("Live")
	}
	testkit.Eventually(b.t, "all of them watch", func() bool { return scrapes.Load() > 0 && pictures.Load() > 1 })
	act()
	for _, x := range tabs {
		x.wait("Live")
		x.visit("#/config")
	}
	stop()
	all.Wait()
}

// Other clients do not wait for what watches the broker: two dashboards, a scrape each second and
// fila top. The figures are for a machine that does nothing else: make bench-dashboard.
func TestOtherClientsDoNotWaitForWhatWatches(t *testing.T) {
	testkit.AtLength(t)
	b := start(t, [2]string{}, "--admin.figures_ms", "5000")
	b.many(*manyQueues, *manyKeys)
	b.do("FILA.QUEUE", "CREATE", "probed", "NODLQ")
	browser := browse(t)
	tabs := []*tab{open(t, browser, b.url, "#/config"), open(t, browser, b.url, "#/config")}
	var alone, watched probe
	turns := map[float64]float64{}
	for range *watchRounds {
		alone.during(b, func() { pass(*watchTime) })
		b.watching(tabs, func() {
			before := b.turns()
			watched.during(b, func() { pass(*watchTime) })
			for le, n := range b.turns() {
				turns[le] += n - before[le]
			}
		})
	}
	below := math.Inf(1)
	for le, n := range turns {
		if n >= 0.99*turns[math.Inf(1)] {
			below = min(below, le)
		}
	}
	t.Logf("%d queues, %d keys; a command of another client, alone: %v", *manyQueues, *manyKeys, &alone)
	t.Logf("watched by two dashboards in Chromium, a scrape each second and fila top twice: %v", &watched)
	t.Logf("99 %% of %.0f turns meanwhile took less than %.3g ms", turns[math.Inf(1)], below*1000)
	if turns[math.Inf(1)] < 100 || len(watched.times) < 100 {
		t.Errorf("only %.0f turns and %d commands were measured", turns[math.Inf(1)], len(watched.times))
	}
	if more := watched.at(1) - alone.at(1); *strict && more > waitMax {
		t.Errorf("another client waits %s longer, want at most %s", more, waitMax)
	}
	if *strict && below > turnMax.Seconds() {
		t.Errorf("99 %% of the turns take up to %.3g ms, want %s", below*1000, turnMax)
	}
	for _, x := range tabs {
		x.wantQuiet()
	}
}
