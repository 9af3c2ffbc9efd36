package dashboard

import (
	"bufio"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// fila web serves the dashboard for a broker elsewhere, as the user of its URL, at an address that
// only its user knows.
func TestTheDashboardIsServedForABrokerElsewhere(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	cmd := exec.Command(kit.Binary(t), "web", "--url", "fila://operator:rotarepo@"+b.Addr(), "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil || len(address.Path) < 20 {
		t.Fatalf("it says %q: %v", line, err)
	}
	for path, want := range map[string]int{"/": 404, "/v1/session": 404, "/x" + address.Path[2:]: 404, address.Path: 200, address.Path + "v1/session": 200} {
		r, err := http.Get("http://" + address.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, r.StatusCode, want)
		}
	}
	x := open(t, browse(t), address.String(), "#/queues/orders")
	x.wait("globex")
	x.wait("operator")
	x.click("button", "Pause")
	x.wait("FILA.QUEUE PAUSE orders OUT")
	x.click("button", "Pause")
	x.wait("orders is paused.")
	x.visit("#/events?kind=queues")
	x.wait("Live")
	b.do("FILA.QUEUE", "CREATE", "later")
	x.wait("later")
	x.visit("#/users")
	x.wait("needs the right +acl|users")

	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	x.wait("unreachable")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
