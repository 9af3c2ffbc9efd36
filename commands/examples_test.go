package commands

import (
	"regexp"
	"strings"
	"testing"
)

// TestExamplesAreTrue sends the examples of every Spec to a server of their own
// and compares what redis-cli would print.
func TestExamplesAreTrue(t *testing.T) {
	for _, c := range everyCommand() {
		t.Run(c.name, func(t *testing.T) {
			conn := newServer(t, nil).connect("")
			receipt, id := "", ""
			for _, e := range c.spec.Examples {
				args, err := splitLine(strings.NewReplacer("<receipt>", receipt, "<id>", id).Replace(e.Command))
				if err != nil {
					t.Fatal(err)
				}
				got := printed(t, conn.do(args...))
				if found := receiptPattern().FindString(got); found != "" {
					receipt = found
				}
				if found := uuid().FindString(got); found != "" {
					id = found
				}
				if e.Reply != "..." && mask(got) != e.Reply {
					t.Errorf("%s\ngot  %s\nwant %s", e.Command, mask(got), e.Reply)
				}
			}
		})
	}
}

func receiptPattern() *regexp.Regexp { return regexp.MustCompile(uuid().String() + `:\d+`) }

// mask puts placeholders where replies differ from one run to the next.
func mask(text string) string {
	text = receiptPattern().ReplaceAllString(text, "<receipt>")
	text = uuid().ReplaceAllString(text, "<id>")
	text = usage().ReplaceAllString(text, "$1<n>")
	return regexp.MustCompile(`\(integer\) 17672\d{8}`).ReplaceAllString(text, "(integer) <time>")
}
