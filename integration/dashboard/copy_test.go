package dashboard

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// The lines that a dialog shows do the same when they are typed: in redis-cli, and in a shell.
func TestTheLinesOfADialogDoTheSameWhenTyped(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	const payload = "it's \"quoted\" \\ $HOME `id` $(id) ! * ~ €\n\ttab; & | > <"
	const key, header = "a key with 'quotes'", "#x y"
	b := start(t, [2]string{})
	b.do("FILA.QUEUE", "CREATE", "my queue", "NODLQ")
	x := open(t, browse(t), b.url, "#/queues/my%20queue")
	x.drawn()
	x.click("button", "Enqueue")
	x.fill("textbox", "Payload", payload)
	x.fill("textbox", "Fairness key", key)
	x.fill("textbox", "Headers", "name: "+header)
	x.wait("HEADER name")
	lines := map[string]string{"redis-cli": x.command()}
	x.click("button", "shell")
	x.wait("fila call FILA.ENQUEUE")
	lines["shell"] = x.command()

	bin := t.TempDir()
	binary, err := filepath.Abs(kit.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(bin, "fila")); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for form, line := range lines {
		cmd := exec.Command("bash", "-c", line)
		if form == "redis-cli" {
			cmd = exec.Command("redis-cli", "-p", port)
			cmd.Stdin = strings.NewReader(line + "\n")
		}
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FILA_URL=fila://"+b.Addr())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %s: %v, %s", form, line, err, out)
		}
		page, _ := b.do("FILA.BROWSE", "my queue").([]any)
		all := client.Maps(page[1])
		if len(all) != 1 {
			t.Fatalf("%s: %s enqueues %d messages", form, line, len(all))
		}
		headers, _ := all[0].Get("headers").(client.Map)
		if all[0].Text("payload") != payload || all[0].Text("key") != key || headers.Text("name") != header {
			t.Errorf("%s: %s enqueues %q of %q with %v", form, line, all[0].Text("payload"), all[0].Text("key"), headers)
		}
		b.do("FILA.PURGE", "my queue")
	}
	x.click("button", "Enqueue")
	x.wait("Enqueued as")
	page, _ := b.do("FILA.BROWSE", "my queue").([]any)
	if all := client.Maps(page[1]); len(all) != 1 || all[0].Text("payload") != payload {
		t.Errorf("the dialog itself enqueues %v", all)
	}
}
