package config

import (
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

func TestAConfigIsWithinItsBounds(t *testing.T) {
	c := Default()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Config){
		"jitter of 101 %":            func(c *Config) { c.Jitter = 101 },
		"a longest backoff below":    func(c *Config) { c.MaxBackoff = c.Backoff - 1 },
		"an interval of 0":           func(c *Config) { c.Sync, c.SyncInterval = SyncInterval, 0 },
		"a total below one window":   func(c *Config) { c.WindowTotal = c.Window - 1 },
		"a ledger of 401 days":       func(c *Config) { c.HistoryDays = 401 },
		"windows that do not rise":   func(c *Config) { c.SignalWindows = []time.Duration{time.Hour, time.Minute} },
		"a limit that refuses all":   func(c *Config) { c.Limits.Key = 0 },
		"names beyond a store's key": func(c *Config) { c.Limits.QueueName = 1<<15 + 1 },
	} {
		c := Default()
		if change(&c); c.Check() == nil {
			t.Errorf("%s: it is accepted", what)
		}
	}
}

func TestAQueueHasTheDefaultsOfTheConfiguration(t *testing.T) {
	c := Default()
	c.Visibility, c.Jitter, c.MaxAttempts = 7*time.Second, 9, 3
	v := c.QueueDefaults()
	for s, row := range queueset.All() {
		if row.Configured && v[s] != 0 {
			t.Errorf("%s is %d: the configuration decides as long as it is 0", row.Name, v[s])
		}
	}
	rows := queueset.Rows()
	if v[queueset.Visibility] != 7000 || v[queueset.BackoffJitter] != 9 || v[queueset.MaxAttempts] != 3 || v[queueset.ResultTTL] != rows[queueset.ResultTTL].Default {
		t.Errorf("they are %v", v)
	}
}
