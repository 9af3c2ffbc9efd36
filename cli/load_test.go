package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreTheContract(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"server.listen_addr", c.Server.ListenAddr, "127.0.0.1:5555"},
		{"storage.engine", c.Storage.Engine, "rocksdb"},
		{"storage.path", c.Storage.Path, "./data"},
		{"storage.sync", c.Storage.Sync, "always"},
		{"storage.mode", c.Storage.Mode, "balanced"},
		{"storage.lease_lag_ms", c.Storage.LeaseLag, 5 * time.Millisecond},
		{"scheduler.quantum", c.Scheduler.Quantum, uint32(1)},
		{"scheduler.visibility_timeout_ms", c.Scheduler.Visibility, 30 * time.Second},
		{"limits.payload_bytes", c.Limits.Payload, 16 << 20},
		{"log.level", c.Log.Level, "info"},
		{"log.format", c.Log.Format, "auto"},
		{"slowlog.slower_than_us", c.Slowlog.SlowerThan, 100 * time.Millisecond},
		{"slowlog.max_entries", c.Slowlog.MaxEntries, 128},
		{"latency.threshold_ms", c.Latency.Threshold, 100 * time.Millisecond},
		{"auth.password", c.Auth.Password, ""},
	} {
		if x.got != x.want {
			t.Errorf("%s is %v by default, want %v", x.name, x.got, x.want)
		}
	}
}

func TestEachLayerIsOverTheOneBefore(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "fila.toml", `
[server]
maxclients = 11
window_max = 12
[storage]
path = "from-file"
[log]
`)
	l, err := Load(Input{
		Environ: []string{"FILA_SERVER__WINDOW_MAX=22", "FILA_STORAGE__PATH=from-env", "HOME=/nowhere"},
		Flags:   map[string]string{"storage.path": "from-flag"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Config.Server.MaxClients; got != 11 {
		t.Errorf("the file says 11, got %d", got)
	}
	if got := l.Config.Server.WindowMax; got != 22 {
		t.Errorf("the environment says 22, got %d", got)
	}
	if got := l.Config.Storage.Path; got != "from-flag" {
		t.Errorf("the flag says from-flag, got %s", got)
	}
	for name, want := range map[string]string{
		"server.maxclients": "fila.toml", "server.window_max": "FILA_SERVER__WINDOW_MAX",
		"storage.path": "--storage.path", "log.level": "",
	} {
		if got := l.sources[name]; got != want {
			t.Errorf("%s came from %q, want %q", name, got, want)
		}
	}
}

// Editors of Windows put a mark before the text.
func TestAByteOrderMarkIsSkipped(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "fila.toml", "\ufeff[server]\nmaxclients = 11\n[[queues]]\nname = 'orders'\n")
	l, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.Server.MaxClients != 11 || len(l.Config.Queues) != 1 {
		t.Errorf("%d clients, %d queues", l.Config.Server.MaxClients, len(l.Config.Queues))
	}
	write(t, "queues.toml", "\ufeff[[queues]]\nname = 'orders'\n")
	if tables, err := loadTables("queues.toml"); err != nil || len(tables.Queues) != 1 {
		t.Errorf("%v, %v", tables, err)
	}
}

func TestANamedFileIsTheOnlyOne(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "fila.toml", "[server]\nmaxclients = 1\n")
	write(t, "other.toml", "[server]\nwindow_max = 2\n")
	l, err := Load(Input{File: "other.toml"})
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.Server.MaxClients == 1 || l.Config.Server.WindowMax != 2 || l.File != "other.toml" {
		t.Errorf("read %s: %+v", l.File, l.Config.Server)
	}
}

// Whatever is wrong, the start stops with one line that has the parts given.
func TestWhatCannotBeStopsTheStart(t *testing.T) {
	env := func(pairs ...string) Input { return Input{Environ: pairs} }
	flags := func(name, value string) Input { return Input{Flags: map[string]string{name: value}} }
	for name, x := range map[string]struct {
		in   Input
		file string
		want []string
	}{
		"unknown in the file":           {file: "[storage]\npth = 'x'", want: []string{"fila.toml", "storage.pth", "did you mean storage.path?"}},
		"unknown section":               {file: "[colour]\nred = 1", want: []string{"colour.red", "fila config"}},
		"unknown empty section":         {file: "[colour]", want: []string{"colour"}},
		"unknown at the top":            {file: "path = 'x'", want: []string{"no setting is named path", "did you mean storage.path?"}},
		"an address at the top":         {file: "listen_addr = ':1'", want: []string{"no setting is named listen_addr", "did you mean server.listen_addr?"}},
		"a section too deep":            {file: "[storage.path]\nx = 1", want: []string{"storage.path.x"}},
		"a section as value":            {file: "storage = 1", want: []string{"no setting is named storage"}},
		"text for a number":             {file: "[server]\nmaxclients = '10'", want: []string{"server.maxclients", "whole number", `"10"`}},
		"a fraction":                    {file: "[server]\nmaxclients = 1.5", want: []string{"server.maxclients", "1.5"}},
		"a number for text":             {file: "[storage]\npath = 7", want: []string{"storage.path", "quotes"}},
		"a list for text":               {file: "[storage]\npath = ['a']", want: []string{"storage.path"}},
		"an empty table for text":       {file: "[storage.path]", want: []string{"storage.path"}},
		"not TOML":                      {file: "[server]\nmaxclients = = 1", want: []string{"fila.toml:2:"}},
		"a key twice":                   {file: "[log]\nlevel='info'\nlevel='warn'", want: []string{"fila.toml"}},
		"below the least":               {file: "[server]\nmaxclients = 0", want: []string{"server.maxclients", "from 1", "not 0"}},
		"above the most":                {in: env("FILA_LIMITS__COUNT=1000001"), want: []string{"FILA_LIMITS__COUNT", "limits.count"}},
		"a negative time":               {in: env("FILA_STORAGE__LEASE_LAG_MS=-1"), want: []string{"storage.lease_lag_ms", "milliseconds from 0"}},
		"a time with a unit":            {in: env("FILA_STORAGE__LEASE_LAG_MS=5ms"), want: []string{"storage.lease_lag_ms", `"5ms"`}},
		"a number too long":             {in: flags("limits.count", "99999999999999999999"), want: []string{"limits.count"}},
		"an empty number":               {in: env("FILA_LIMITS__COUNT="), want: []string{"limits.count", `""`}},
		"not a choice":                  {in: flags("storage.sync", "sometimes"), want: []string{"storage.sync", "always, interval, never", "sometimes"}},
		"a choice in capitals":          {in: env("FILA_LOG__LEVEL=INFO"), want: []string{"log.level"}},
		"unknown variable":              {in: env("FILA_STORAGE__PTH=x"), want: []string{"FILA_STORAGE__PTH", "FILA_STORAGE__PATH"}},
		"one underscore":                {in: env("FILA_STORAGE_PATH=x"), want: []string{"FILA_STORAGE_PATH", "did you mean FILA_STORAGE__PATH?"}},
		"a lone prefix":                 {in: env("FILA_=x"), want: []string{"FILA_ "}},
		"an address without port":       {in: flags("server.listen_addr", "localhost"), want: []string{"server.listen_addr", "host:port"}},
		"a port too high":               {in: flags("server.listen_addr", "127.0.0.1:65536"), want: []string{"server.listen_addr", "65535"}},
		"no path":                       {in: flags("storage.path", ""), want: []string{"storage.path", "empty"}},
		"all interfaces":                {in: flags("server.listen_addr", "0.0.0.0:5555"), want: []string{"0.0.0.0:5555", "auth.password", "127.0.0.1"}},
		"all interfaces, short":         {in: flags("server.listen_addr", ":5555"), want: []string{"auth.password"}},
		"all interfaces, IPv6":          {in: flags("server.listen_addr", "[::]:5555"), want: []string{"auth.password"}},
		"a host name":                   {in: flags("server.listen_addr", "localhost.example:5555"), want: []string{"auth.password"}},
		"a payload over a command":      {in: flags("limits.command_bytes", "16777216"), want: []string{"limits.command_bytes", "limits.payload_bytes"}},
		"a cache too small":             {in: flags("storage.block_cache_bytes", "8388607"), want: []string{"storage.block_cache_bytes", "8388608"}},
		"a first backoff over the last": {in: flags("scheduler.backoff_ms", "300001"), want: []string{"scheduler.max_backoff_ms"}},
		"a file that is not there":      {in: Input{File: "none.toml"}, want: []string{"--config", "none.toml"}},
		"a directory for a file":        {in: Input{File: "."}, want: []string{"directory"}},
		"two mistakes":                  {file: "[storage]\nmode='x'\nengine='y'", want: []string{"storage.engine", "storage.mode"}},
		"two wrong values":              {file: "[server]\nmaxclients = 0\n[log]\nlevel = 'loud'", want: []string{"server.maxclients", "log.level"}},
		"a byte order mark and more":    {file: "\ufeff[server]\nmaxclients = 0", want: []string{"server.maxclients"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if x.file != "" {
				write(t, "fila.toml", x.file)
			}
			_, err := Load(x.in)
			if err == nil {
				t.Fatal("it starts")
			}
			if _, ok := errors.AsType[UsageError](err); !ok {
				t.Errorf("%T would not exit with 2", err)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("more than one line: %q", err)
			}
			for _, part := range x.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestBothSidesOfEveryBound(t *testing.T) {
	for _, s := range settings(new(Config)) {
		n, ok := s.value.(interface{ ends() (int64, int64) })
		if !ok {
			continue
		}
		least, most := n.ends()
		s.value.reset()
		before := s.value.String()
		for _, bad := range []int64{least - 1, most + 1} {
			if err := s.value.set(bad); err == nil || s.value.String() != before {
				t.Errorf("%s takes %d", s.name, bad)
			}
		}
		for _, good := range []int64{least, most} {
			if err := s.value.set(good); err != nil {
				t.Errorf("%s refuses %d: %v", s.name, good, err)
			}
		}
	}
}

func (n number[T]) ends() (int64, int64) { return n.min, n.max }

func TestEveryDefaultIsAllowed(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings(new(Config)) {
		s.value.reset()
		if err := s.value.parse(s.value.String()); err != nil {
			t.Errorf("%s: its default is refused: %v", s.name, err)
		}
		if s.doc == "" || !strings.HasSuffix(s.doc, ".") || strings.Contains(s.doc, "|") {
			t.Errorf("%s: its description is not a sentence for a table: %q", s.name, s.doc)
		}
		if seen[s.name] {
			t.Errorf("%s is there twice", s.name)
		}
		seen[s.name] = true
	}
}

func TestAPasswordOpensTheAddress(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(Input{Flags: map[string]string{"server.listen_addr": "0.0.0.0:0", "auth.password": "s3cret"}})
	if err != nil || l.Config.Auth.Password != "s3cret" {
		t.Fatalf("%+v, %v", l, err)
	}
}

func TestAddressesOfThisMachineAloneNeedNoPassword(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, addr := range []string{"127.0.0.1:0", "127.9.9.9:1", "[::1]:5555", "localhost:5555", "[::ffff:127.0.0.1]:5555"} {
		if _, err := Load(Input{Flags: map[string]string{"server.listen_addr": addr}}); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestAPasswordIsNotInTheErrorOrTheListing(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "fila.toml", "[auth]\npassword = 123454321\n")
	_, err := Load(Input{})
	if err == nil || strings.Contains(err.Error(), "123454321") {
		t.Errorf("got %v", err)
	}
}

func TestSettingsAreShownButForThePassword(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(Input{Flags: map[string]string{"auth.password": "s3cret", "limits.count": "5"}})
	if err != nil {
		t.Fatal(err)
	}
	shown := l.Config.Settings()
	if _, there := shown["auth.password"]; there || shown["limits.count"] != "5" || shown["storage.sync"] != "always" {
		t.Errorf("shown: %v", shown)
	}
	if l.Config.Auth.Password != "s3cret" {
		t.Error("showing the settings changed them")
	}
}

func TestHomeExpandsAtTheStartOfThePath(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(t.TempDir())
	for in, want := range map[string]string{
		"~/fila":       filepath.Join(home, "fila"),
		"~":            home,
		"$HOME/fila":   filepath.Join(home, "fila"),
		"~other/fila":  "~other/fila",
		"$HOMER/fila":  "$HOMER/fila",
		"/srv/~/$HOME": "/srv/~/$HOME",
	} {
		l, err := Load(Input{Flags: map[string]string{"storage.path": in}})
		if err != nil {
			t.Fatal(err)
		}
		if l.Config.Storage.Path != want {
			t.Errorf("%s became %s, want %s", in, l.Config.Storage.Path, want)
		}
	}
}

func TestVariablesThatAreNoSettingsDoNotStopTheStart(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := Load(Input{Environ: []string{
		"FILA_PORT=tcp://10.0.0.1:5555", "FILA_SERVICE_HOST=10.0.0.1", "FILA_SERVICE_PORT=5555", "FILA_PORT_5555_TCP_ADDR=10.0.0.1",
		"FILA_URL=fila://10.0.0.1:5555", "FILA_MESSAGE_ID=01982a6e", "FILA_SQS_REGION=eu-1", "FILA_OUTBOX_DATABASE_URL=postgres://db/app", "FILA_MESSAGE_HEADER_TRACE=7f3a",
		// Services named "fila-admin" and "fila-my-7", with a named port.
		"FILA_ADMIN_SERVICE_HOST=10.0.0.2", "FILA_ADMIN_SERVICE_PORT=5557", "FILA_ADMIN_SERVICE_PORT_HTTP=5557",
		"FILA_ADMIN_PORT=tcp://10.0.0.2:5557", "FILA_ADMIN_PORT_5557_TCP=tcp://10.0.0.2:5557", "FILA_ADMIN_PORT_5557_TCP_PROTO=tcp",
		"FILA_ADMIN_PORT_5557_TCP_PORT=5557", "FILA_ADMIN_PORT_5557_TCP_ADDR=10.0.0.2",
		"FILA_MY_7_PORT=udp://10.0.0.3:53", "FILA_MY_7_PORT_53_UDP=udp://10.0.0.3:53", "FILA_MY_7_PORT_9_SCTP_ADDR=10.0.0.3",
	}})
	if err != nil {
		t.Error(err)
	}
	for _, typo := range []string{
		"FILA_ADMIN_LISTEN_ADDR=127.0.0.1:5557", "FILA_ADMIN_PORT=5557", "FILA_PORT=5555", "FILA_STORAGE__PTAH=x", "FILA_SERVER_PORT=7001",
		"FILA_ADMIN_PORT_HTTP_TCP=1", "FILA_ADMIN_SERVICE=10.0.0.2", "FILA_PORT_LISTEN=1",
	} {
		name, _, _ := strings.Cut(typo, "=")
		if _, err := Load(Input{Environ: []string{typo}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", typo, err)
		}
	}
	for _, s := range settings(new(Config)) {
		if slices.Contains([]string{"port", "service", "url", "message"}, s.section()) {
			t.Errorf("%s could not be set by its variable", s.name)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
