package integration_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Readers copy receipts by hand. The lease must outlast that.
func TestTheLeasesOfTheTutorialsOutlastTheirCopying(t *testing.T) {
	const enough = 5 * time.Minute
	var text []byte
	for _, name := range []string{"first-queue", "fair-tenants"} {
		page, err := os.ReadFile("../docs/tutorial/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, page...)
	}
	leases := 0
	for _, block := range regexp.MustCompile("(?s)\n```redis-cli\n(.*?)```").FindAllSubmatch(text, -1) {
		for _, line := range regexp.MustCompile(`(?m)^[\d.:]+> FILA\.LEASE .*$`).FindAll(block[1], -1) {
			leases++
			lasts := 30 * time.Second
			if given := regexp.MustCompile(`VISIBILITY (\d+)`).FindSubmatch(line); given != nil {
				ms, err := strconv.Atoi(string(given[1]))
				if err != nil {
					t.Fatal(err)
				}
				lasts = time.Duration(ms) * time.Millisecond
			}
			if lasts < enough {
				t.Errorf("%s: the lease lasts %s", line, lasts)
			}
		}
	}
	if leases < 4 {
		t.Errorf("%d leases are found", leases)
	}
}
