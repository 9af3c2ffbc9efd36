package dashboard

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// A broker without queues shows three steps, which are done here in the page and by a worker, and goes on to its queues
// when the first message is acked.
func TestTheFirstStepsGoOnByThemselves(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	x := open(t, browse(t), b.url, "#/")
	x.wait("There is no queue yet.")
	doneAre := func(want string) {
		x.t.Helper()
		x.until("the steps are "+want, `(want) => [...document.querySelectorAll(".steps h3")].map((h) => h.querySelector(".badge")?.innerText ?? "-").join() === want`, want)
	}
	doneAre("next,-,-")
	source := axe(t)
	for _, scheme := range []string{"light", "dark"} {
		x.theme(scheme)
		x.size(1280, 900)
		x.accessible(source, "the first steps "+scheme)
		x.shoot("steps-" + scheme)
		x.size(390, 800)
		x.narrow("the first steps")
		x.shoot("steps-390-" + scheme)
	}
	x.size(1280, 900)
	x.click("button", "New queue")
	x.wait("FILA.QUEUE CREATE orders")
	x.fill("textbox", "Name", "mails")
	x.click("button", "New queue")
	x.wait("The queue is made.")
	doneAre("done,next,-")
	x.wait("FILA.LEASE mails BLOCK 5000")
	worker := b.dial("", "")
	go func() {
		reply, _ := worker.Do(b.t.Context(), "FILA.LEASE", "mails", "BLOCK", "0")
		leased, _ := reply.([]any)
		if message, _ := leased[0].([]any); len(message) > 0 {
			_, _ = worker.Do(b.t.Context(), "FILA.ACK", "mails", client.Text(message[0]))
		}
	}()
	doneAre("done,done,next")
	x.visit("#/topics")
	x.visit("#/") // it goes on where it was
	doneAre("done,done,next")
	x.click("button", "Enqueue")
	x.wait("FILA.ENQUEUE mails hello")
	x.click("button", "Enqueue")
	x.wait("The first message is acked.")
	x.find("heading", "1 queue")
	if n := b.do("FILA.STATS", "mails").(client.Map).Int("acked"); n != 1 {
		t.Errorf("%d messages are acked", n)
	}
	x.wantQuiet()
}

// The first steps can be left out, and a user that may only look is told what is missing.
func TestTheFirstStepsAreSkipped(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	x := open(t, browse(t), b.url, "#/")
	x.login("viewer", "reweiv")
	x.wait("redis-cli -u redis://viewer:PASSWORD@127.0.0.1:")
	if reasons, enabled := x.disabled(); reasons["New queue"] != "needs the right +fila.queue|create" || len(enabled) > 0 {
		t.Errorf("disabled are %q, enabled %q", reasons, enabled)
	}
	x.click("button", "Skip")
	x.wait("A queue holds messages until a worker has done them.")
	x.find("heading", "0 queues")
	x.wantQuiet()
}

// Each program of the first steps works as the page shows it.
func TestTheProgramsOfTheFirstStepsWork(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	browser := browse(t)
	for _, l := range []struct{ name, ending, command string }{
		{"redis-cli", "sh", "bash"},
		{"Python", "py", "/usr/bin/python3"},
		{"Node.js", "mjs", "node"},
		{"Go", "go", "go run"},
		{"PHP", "php", "php"},
		{"Ruby", "rb", "ruby"},
	} {
		b := start(t, admin(), withUsers(t)...)
		x := open(t, browser, b.url, "#/")
		x.login("admin", "nimda")
		x.click("button", l.name)
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(root, "integration", "clients", "javascript", "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		file := func(step string) string {
			text, err := x.MustElement(`pre[aria-label="` + step + "." + l.ending + `"]`).Text()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, step+"."+l.ending)
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "PASSWORD", "nimda")), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		command := func(ctx context.Context, step string) *exec.Cmd {
			words := append(strings.Fields(l.command), file(step))
			cmd := exec.CommandContext(ctx, words[0], words[1:]...)
			cmd.Dir = root // where Go finds the module of its client
			return cmd
		}
		for _, step := range []string{"create", "enqueue"} {
			if out, err := command(t.Context(), step).CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v\n%s", l.name, step, err, out)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cmd := command(ctx, "worker")
		cmd.WaitDelay = testkit.Patience()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		x.wait("The first message is acked.")
		if n := b.do("FILA.STATS", "orders").(client.Map).Int("acked"); n != 1 {
			t.Errorf("%s: %d messages are acked", l.name, n)
		}
		cancel()
		_ = cmd.Wait()
		x.wantQuiet()
	}
}
