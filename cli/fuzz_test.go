package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfiguration loads whatever a file, a variable and a flag may hold: it is
// taken as it is or refused in one line, which never shows a password.
func FuzzConfiguration(f *testing.F) {
	f.Add("[server]\nlisten_addr = \"127.0.0.1:0\"\n", "FILA_STORAGE__SYNC", "never", "limits.count", "7")
	f.Add("storage.path = \"~/x\"\nauth.password = \"s3cr3t\"\n", "FILA_LOG__LEVEL", "loud", "lua.timeout_ms", "-1")
	f.Add("[limits]\npayload_bytes = 1e3\nx = [1, {a = 2}]", "FILA_", "", "", "")
	for _, s := range settings(new(Config)) {
		f.Add("", s.env(), "1", s.name, "9223372036854775808")
	}
	f.Fuzz(func(t *testing.T, text, variable, value, flag, given string) {
		file := filepath.Join(t.TempDir(), "fila.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		const secret = "s3cr3t-of-the-environment"
		in := Input{File: file, Environ: []string{variable + "=" + value, "FILA_AUTH__PASSWORD=" + secret}, Flags: map[string]string{flag: given}}
		l, err := Load(in)
		if err != nil {
			var usage UsageError
			if !errors.As(err, &usage) || strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), secret) {
				t.Fatalf("refused with %q", err)
			}
			return
		}
		if err := l.Config.check(); err != nil {
			t.Fatalf("taken, and it cannot be: %v", err)
		}
		for _, s := range l.settings {
			if shown := s.shown(); s.secret && strings.Contains(shown, secret) {
				t.Fatalf("%s is shown: %s", s.name, shown)
			}
		}
	})
}
