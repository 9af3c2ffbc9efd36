package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestSnippetsOfTheExamplesEnd runs the snippets in scripting languages as printed, except for the
// port and the import of the library: each acks its message and ends.
func TestSnippetsOfTheExamplesEnd(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	needs := map[string]client{}
	for _, c := range clients() {
		needs[c.name] = c
	}
	for _, s := range []struct{ language, client, first, file, command string }{
		{"python", "redis-py", "import redis\n", "snippet.py", "/usr/bin/python3"},
		{"js", "ioredis", "import Redis from 'ioredis'\n", "snippet.mjs", "node"},
	} {
		t.Run(s.language, func(t *testing.T) {
			installed(t, needs[s.client])
			found := regexp.MustCompile("(?s)\n```"+s.language+"\n(.*?)```").FindAllSubmatch(text, -1)
			if len(found) != 1 {
				t.Fatalf("%d snippets in %s", len(found), s.language)
			}
			b := kit.Serve(t)
			admin := kit.Connect(t, b.Addr(), 3)
			r := &trial{T: t, addr: b.Addr(), admin: admin, queue: "thumbnails"}
			kit.Do(t, admin, "FILA.QUEUE", "CREATE", r.queue)
			_, port, _ := strings.Cut(b.Addr(), ":")
			program := s.first + strings.ReplaceAll(string(found[0][1]), "5555", port)
			dir := t.TempDir()
			withPackages(t, dir)
			file := filepath.Join(dir, s.file)
			if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx := testkit.Context(t)
			out, err := exec.CommandContext(ctx, s.command, file).CombinedOutput()
			if err != nil || ctx.Err() != nil {
				t.Errorf("it ends with %v\n%s", err, out)
			}
			if r.figure("acked") != 1 {
				t.Errorf("acked %d messages", r.figure("acked"))
			}
		})
	}
}
