package integration_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// tickOf returns the tick that created a message, in Unix seconds.
func tickOf(t *testing.T, d *delivery) int64 {
	t.Helper()
	for i := 0; i+1 < len(d.headers); i += 2 {
		if d.headers[i] == "fila-cron-at" {
			ms, err := strconv.ParseInt(fmt.Sprint(d.headers[i+1]), 10, 64)
			if err != nil || ms%1000 != 0 {
				t.Fatalf("%v is no tick", d.headers[i+1])
			}
			return ms / 1000
		}
	}
	t.Fatalf("%v name no tick", d.headers)
	return 0
}

// TestATickMakesOneMessageAcrossKills kills the broker between ticks and, at random, during ticks.
// Messages are acked by later processes: each tick has created exactly one message.
func TestATickMakesOneMessageAcrossKills(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	if out, code := cli(t, b.Addr(), "", "-e", "FILA.CRON", "SET", "s", "q", "* * * * * *", "tick", "TZ", "Europe/Berlin", "CATCHUP", "ALL", "KEY", "k"); out != "OK" || code != 0 {
		t.Fatalf("%s, exit code %d", out, code)
	}
	var ticks []int64
	kills := 0
	testkit.Eventually(t, "there are enough kills and ticks", func() bool {
		if kills < 3 && len(ticks) >= 2*kills+1 {
			// Close to the next tick.
			tick := time.Now().Truncate(time.Second).Add(time.Second + time.Duration(kills-1)*500*time.Microsecond)
			for time.Now().Before(tick) { // the kill is at the time of a tick
				time.Sleep(time.Until(tick))
			}
			kit.Kill(t, b)
			kills++
			kit.Start(t, b)
		}
		ds, err := leased(kit.Do(t, c, "FILA.LEASE", "q", "BLOCK", 2000))
		if err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			if ds[i].payload != "tick" || ds[i].key != "k" {
				t.Errorf("%+v", ds[i])
			}
			ticks = append(ticks, tickOf(t, &ds[i]))
			kit.Do(t, c, "FILA.ACK", "q", ds[i].receipt)
		}
		return kills >= 3 && len(ticks) >= 7
	})
	slices.Sort(ticks)
	for i, at := range ticks {
		if at != ticks[0]+int64(i) {
			t.Fatalf("ticks %v: %d is not the one that follows", ticks, at)
		}
	}
	for _, protocol := range []int{2, 3} {
		m := kit.Mapped(t, kit.Do(t, kit.Connect(t, b.Addr(), protocol), "FILA.CRON", "GET", "s"))
		if fired, ok := m["fired"].(int64); !ok || fired < int64(len(ticks)) || m["missed"] != int64(0) || m["catchup"] != "all" || m["tz"] != "Europe/Berlin" {
			t.Errorf("%v", m)
		}
	}
	if n := kit.Do(t, c, "FILA.CRON", "DEL", "s"); n != int64(1) {
		t.Errorf("%v", n)
	}
	kit.Kill(t, b)
	kit.Start(t, b)
	if m := kit.Do(t, c, "FILA.CRON", "GET", "s"); m != nil {
		t.Errorf("it is back: %v", m)
	}
}

// TestAPauseSurvivesAKill kills the broker while a recurring message is paused: it stays paused, its ticks are not
// missed, and after the resumption it ticks again, with the message that it had.
func TestAPauseSurvivesAKill(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.CRON", "SET", "s", "q", "* * * * * *", "tick", "CATCHUP", "ALL", "HEADER", "kind", "night")
	if n := kit.Do(t, c, "FILA.CRON", "PAUSE", "s"); n != int64(1) {
		t.Fatalf("the pause: %v", n)
	}
	before := kit.Mapped(t, kit.Do(t, c, "FILA.CRON", "GET", "s"))
	kit.Kill(t, b)
	kit.Start(t, b)
	testkit.Eventually(t, "two ticks have passed", func() bool { // beyond the time of the pause
		at, ok := before["paused_at"].(int64)
		return !ok || time.Now().UnixMilli() > at+2000
	})
	m := kit.Mapped(t, kit.Do(t, c, "FILA.CRON", "GET", "s", "CONTENT"))
	if m["paused_at"] == nil || m["paused_at"] != before["paused_at"] || m["next_at"] != nil || m["fired"] != before["fired"] || m["missed"] != int64(0) || m["payload"] != "tick" {
		t.Errorf("after the kill: %v, before: %v", m, before)
	}
	resumed := time.Now().Unix() // or later
	if n := kit.Do(t, c, "FILA.CRON", "RESUME", "s"); n != int64(1) {
		t.Fatalf("the resumption: %v", n)
	}
	for {
		ds, err := leased(kit.Do(t, c, "FILA.LEASE", "q", "BLOCK", testkit.Patience().Milliseconds()/2))
		if err != nil || len(ds) != 1 {
			t.Fatalf("%v, %v", ds, err)
		}
		kit.Do(t, c, "FILA.ACK", "q", ds[0].receipt)
		at := tickOf(t, &ds[0])
		if paused, _ := before["paused_at"].(int64); at*1000 > paused && at < resumed {
			t.Errorf("a message of the tick at %d, in the pause from %d to %d", at, paused/1000, resumed)
		}
		if at >= resumed {
			break
		}
	}
	if m := kit.Mapped(t, kit.Do(t, c, "FILA.CRON", "GET", "s")); m["paused_at"] != nil || m["missed"] != int64(0) {
		t.Errorf("after the resumption: %v", m)
	}
}
