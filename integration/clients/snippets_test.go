package clients_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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
	bin := binary(t)
	for _, s := range []struct{ language, client, first, file, command string }{
		{"python", "redis-py", "import redis\n", made("snippet.py"), "/usr/bin/python3"},
		{"js", "ioredis", "import Redis from 'ioredis'\n", filepath.Join("javascript", "snippet.mjs"), "node"},
	} {
		t.Run(s.language, func(t *testing.T) {
			installed(t, needs[s.client])
			found := regexp.MustCompile("(?s)\n```"+s.language+"\n(.*?)```").FindAllSubmatch(text, -1)
			if len(found) != 1 {
				t.Fatalf("%d snippets in %s", len(found), s.language)
			}
			b := serve(t, bin)
			admin := redis.NewClient(&redis.Options{Addr: b.Addr()})
			defer admin.Close()
			r := &trial{T: t, addr: b.Addr(), admin: admin, queue: "thumbnails"}
			if err := admin.Do(t.Context(), "FILA.QUEUE", "CREATE", r.queue).Err(); err != nil {
				t.Fatal(err)
			}
			_, port, _ := strings.Cut(b.Addr(), ":")
			program := s.first + strings.ReplaceAll(string(found[0][1]), "5555", port)
			if err := os.WriteFile(s.file, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(s.file)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, s.command, s.file).CombinedOutput()
			if err != nil || ctx.Err() != nil {
				t.Errorf("it ends with %v\n%s", err, out)
			}
			if r.figure("acked") != 1 {
				t.Errorf("acked %d messages", r.figure("acked"))
			}
		})
	}
}
