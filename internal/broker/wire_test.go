package broker

import (
	"reflect"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/scripting"
)

// The documented defaults are those of the packages: this fails until both agree.
func TestTheDefaultsOfTheSettingsAreThoseOfTheParts(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := cli.Load(cli.Input{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := engineConfig(l.Config, nil, zerolog.Nop()), engine.DefaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("engine: settings give\n%+v\nits default is\n%+v", got, want)
	}
	if got, want := scriptingConfig(l.Config), scripting.DefaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("scripting: settings give\n%+v\nits default is\n%+v", got, want)
	}
	want := resp.DefaultConfig()
	want.Addr = l.Config.Server.ListenAddr
	if got := respConfig(l.Config, zerolog.Nop()); !reflect.DeepEqual(got, want) {
		t.Errorf("resp: settings give\n%+v\nits default is\n%+v", got, want)
	}
}

// The parts must accept what the settings allow: otherwise a start would fail with an error
// that names no setting.
func TestThePartsAcceptTheEndsOfEverySetting(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, ends := range []map[string]string{
		{
			"server.maxclients": "1", "server.idle_timeout_ms": "0", "server.write_timeout_ms": "1", "server.window_max": "1",
			"server.output_bytes_max": "65536", "server.reply_bytes_max": "1048576", "limits.payload_bytes": "1", "limits.command_bytes": "1025", "limits.headers": "1",
			"limits.header_value_bytes": "1", "limits.throttles": "0", "limits.count": "1", "limits.weight": "1",
			"limits.queue_name_bytes": "1", "limits.key_bytes": "1", "limits.header_name_bytes": "1",
			"scheduler.quantum": "1", "scheduler.window": "2", "scheduler.body_bytes": "0", "scheduler.backoff_ms": "0", "scheduler.backoff_jitter_percent": "0",
			"scheduler.max_backoff_ms": "0", "scheduler.visibility_timeout_ms": "1", "storage.lease_lag_ms": "0", "storage.sync_interval_ms": "1",
			"lua.timeout_ms": "1", "lua.memory_bytes": "262144", "lua.breaker_errors": "1", "lua.breaker_cooldown_ms": "1", "admin.figures_ms": "100", "limits.script_bytes": "1", "limits.cost": "1",
			"limits.script_history_bytes": "0",
		},
		{
			"server.maxclients": "1000000", "server.idle_timeout_ms": "31536000000", "server.write_timeout_ms": "86400000",
			"server.window_max": "1000000", "server.output_bytes_max": "68719476736", "server.reply_bytes_max": "1099511627776", "limits.payload_bytes": "536870912",
			"limits.command_bytes": "1072693248", "limits.headers": "10000", "limits.header_value_bytes": "67108864",
			"limits.throttles": "1024", "limits.count": "1000000", "limits.weight": "1000000", "limits.queue_name_bytes": "32768",
			"limits.key_bytes": "32768", "limits.header_name_bytes": "32768", "scheduler.quantum": "1000000",
			"scheduler.window": "100000", "scheduler.body_bytes": "1099511627776", "scheduler.backoff_ms": "31536000000", "scheduler.backoff_jitter_percent": "100",
			"scheduler.max_backoff_ms": "31536000000", "scheduler.visibility_timeout_ms": "31536000000",
			"storage.lease_lag_ms": "60000", "storage.sync": "interval",
			"lua.timeout_ms": "60000", "lua.memory_bytes": "1073741824", "lua.breaker_errors": "1000000", "lua.breaker_cooldown_ms": "86400000", "admin.figures_ms": "3600000", "limits.script_bytes": "1048576",
			"limits.cost": "1000000", "limits.script_history_bytes": "1073741824",
		},
	} {
		l, err := cli.Load(cli.Input{Flags: ends})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loop.New(engineConfig(l.Config, nil, zerolog.Nop()), memoryStore()); err != nil {
			t.Error(err)
		}
		if _, err := scripting.New(scriptingConfig(l.Config)); err != nil {
			t.Error(err)
		}
		if _, err := resp.NewServer(respConfig(l.Config, zerolog.Nop()), new(lateHandler)); err != nil {
			t.Error(err)
		}
	}
}
