package integration_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
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
	b := serve(t)
	c := connect(t, b.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	if out, code := cli(t, b.Addr(), "", "-e", "FILA.CRON", "SET", "s", "q", "* * * * * *", "tick", "TZ", "Europe/Berlin", "CATCHUP", "ALL", "KEY", "k"); out != "OK" || code != 0 {
		t.Fatalf("%s, exit code %d", out, code)
	}
	var ticks []int64
	end := time.Now().Add(patience)
	for kills := 0; kills < 3 || len(ticks) < 7; {
		if time.Now().After(end) {
			t.Fatalf("%d kills, ticks %v", kills, ticks)
		}
		if kills < 3 && len(ticks) >= 2*kills+1 {
			// Close to the next tick.
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + time.Duration(kills-1)*500*time.Microsecond)))
			if err := b.Kill(); err != nil {
				t.Fatal(err)
			}
			kills++
			restart(t, b)
		}
		ds, err := leased(do(t, c, "FILA.LEASE", "q", "BLOCK", 2000))
		if err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			if ds[i].payload != "tick" || ds[i].key != "k" {
				t.Errorf("%+v", ds[i])
			}
			ticks = append(ticks, tickOf(t, &ds[i]))
			do(t, c, "FILA.ACK", "q", ds[i].receipt)
		}
	}
	slices.Sort(ticks)
	for i, at := range ticks {
		if at != ticks[0]+int64(i) {
			t.Fatalf("ticks %v: %d is not the one that follows", ticks, at)
		}
	}
	for _, protocol := range []int{2, 3} {
		m := mapped(t, do(t, connect(t, b.Addr(), protocol), "FILA.CRON", "GET", "s"))
		if fired, ok := m["fired"].(int64); !ok || fired < int64(len(ticks)) || m["missed"] != int64(0) || m["catchup"] != "all" || m["tz"] != "Europe/Berlin" {
			t.Errorf("%v", m)
		}
	}
	if n := do(t, c, "FILA.CRON", "DEL", "s"); n != int64(1) {
		t.Errorf("%v", n)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	restart(t, b)
	if m := do(t, c, "FILA.CRON", "GET", "s"); m != nil {
		t.Errorf("it is back: %v", m)
	}
}
