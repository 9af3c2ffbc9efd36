package dashboard

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"

	"github.com/faisca/fila/internal/testkit"
)

var (
	takePictures = flag.Bool("pictures", false, "write the pictures of docs/reference/dashboard.md again")
	pictureTime  = flag.Duration("for", 40*time.Second, "how long the charts of a picture show")
)

// pictures are those of the documents, by name.
func pictures(b *broker) map[string]string {
	b.t.Helper()
	all := everyPage(b)
	all["dead"] += "?cause=" + "dial tcp %23:%23: connection refused"
	return all
}

// The documents have a picture of each page. They are made here, of a broker that works, and not
// compared: look at them.
func TestTheDocumentsHaveAPictureOfEachPage(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile(`\]\(../pictures/([a-z]+)\.png\)`).FindAllStringSubmatch(string(text), -1) {
		shown = append(shown, m[1])
	}
	b := start(t, admin(), withUsers(t)...)
	shop(b)
	for name := range pictures(b) {
		if !slices.Contains(shown, name) {
			t.Errorf("docs/reference/dashboard.md has no picture of %s", name)
		}
	}
	if !*takePictures {
		return
	}
	b.work("worker", "rekrow", 12*time.Millisecond, "orders")
	b.work("worker", "rekrow", 40*time.Millisecond, "mails")
	b.produce("orders", 20*time.Millisecond, "acme", "initech", "globex")
	b.produce("mails", 60*time.Millisecond, "acme")
	x := open(t, browse(t), b.url, "#/")
	x.size(1200, 780)
	x.theme("light")
	x.login("admin", "nimda")
	for _, hash := range []string{"#/queues/orders", "#/"} {
		x.visit(hash)
		for end := time.Now().Add(*pictureTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			x.wantQuiet()
		}
		x.picture(map[bool]string{true: "overview", false: "keys"}[hash == "#/"])
	}
	for name, hash := range pictures(b) {
		if name == "overview" || name == "keys" {
			continue
		}
		if _, err := x.Eval(`(hash) => { location.hash = hash; }`, hash); err != nil {
			t.Fatal(err)
		}
		x.settle()
		x.drawn()
		x.picture(name)
	}
	x.theme("dark")
	if _, err := x.Eval(`() => { location.hash = "#/queues/orders"; }`); err != nil {
		t.Fatal(err)
	}
	x.drawn()
	x.picture("dark")
	x.click("button", "Weight of acme")
	x.wait("FILA.KEY SET orders acme WEIGHT")
	x.picture("action")
}

// produce enqueues a message for each tenant again and again, until the test ends.
func (b *broker) produce(queue string, every time.Duration, tenants ...string) {
	b.t.Helper()
	c := b.dial("worker", "rekrow")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			tenant := tenants[i%len(tenants)]
			words := []string{"FILA.ENQUEUE", queue, `{"order": 6}`, "KEY", tenant, "HEADER", "tenant", tenant}
			if tenant == "globex" {
				words = append(words, "THROTTLE", "tenant:globex")
			}
			if _, err := c.Do(b.t.Context(), words...); err != nil {
				return
			}
		}
	}()
	b.t.Cleanup(func() {
		close(stop)
		<-ended
	})
}

// picture writes a picture of the window for the documents.
func (x *tab) picture(name string) {
	x.t.Helper()
	dir := filepath.Join("..", "..", "docs", "pictures")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		x.t.Fatal(err)
	}
	taken, err := x.Screenshot(false, &proto.PageCaptureScreenshot{Format: proto.PageCaptureScreenshotFormatPng})
	if err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), taken, 0o644); err != nil {
		x.t.Fatal(err)
	}
}
