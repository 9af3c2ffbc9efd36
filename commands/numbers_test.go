//go:build !race

package commands

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/scripting"
)

// numberedCommands are commands with a number at #, one for each argument of the table that is a
// number, under its place there. $id is a message that is delayed, $lease the receipt of
// one that is leased, $dead one in the dead-letter queue.
func numberedCommands() map[string]string {
	all := map[string]string{
		"ACL GENPASS bits":              "ACL GENPASS #",
		"ACL LOG count":                 "ACL LOG #",
		"CLIENT KILL ID":                "CLIENT KILL ID #",
		"CLIENT LIST client-id":         "CLIENT LIST ID #",
		"CLIENT TRACKING REDIRECT":      "CLIENT TRACKING ON REDIRECT #",
		"CLIENT UNBLOCK client-id":      "CLIENT UNBLOCK #",
		"FILA.BROWSE COUNT":             "FILA.BROWSE q COUNT #",
		"FILA.BROWSE SINCE":             "FILA.BROWSE q SINCE #",
		"FILA.BROWSE UNTIL":             "FILA.BROWSE q UNTIL #",
		"FILA.CONFIG LIST COUNT":        "FILA.CONFIG LIST COUNT #",
		"FILA.CRON LIST CURSOR":         "FILA.CRON LIST CURSOR #",
		"FILA.CRON LIST COUNT":          "FILA.CRON LIST COUNT #",
		"FILA.EXTEND ms":                "FILA.EXTEND q $lease #",
		"FILA.GROUP LIST CURSOR":        "FILA.GROUP LIST CURSOR #",
		"FILA.GROUP LIST COUNT":         "FILA.GROUP LIST COUNT #",
		"FILA.GROUP OPEN AT":            "FILA.GROUP OPEN g q x AT #",
		"FILA.GROUP OPEN CHARGE":        "FILA.GROUP OPEN g q x BUDGET b CHARGE #",
		"FILA.GROUP OPEN EXPIRE":        "FILA.GROUP OPEN g q x EXPIRE #",
		"FILA.FIGURES CURSOR":           "FILA.FIGURES CURSOR #",
		"FILA.FIGURES COUNT":            "FILA.FIGURES COUNT #",
		"FILA.KEY SET WEIGHT":           "FILA.KEY SET q k WEIGHT #",
		"FILA.KEY SET MAXDEPTH":         "FILA.KEY SET q k MAXDEPTH #",
		"FILA.HISTORY RANGE":            "FILA.HISTORY q KEY k RANGE #",
		"FILA.THROTTLE HISTORY RANGE":   "FILA.THROTTLE HISTORY t RANGE #",
		"FILA.KEYS CURSOR":              "FILA.KEYS q CURSOR #",
		"FILA.KEYS COUNT":               "FILA.KEYS q COUNT #",
		"FILA.LEASE COUNT":              "FILA.LEASE none COUNT #",
		"FILA.LEASE BLOCK":              "FILA.LEASE none BLOCK #",
		"FILA.LEASE VISIBILITY":         "FILA.LEASE q VISIBILITY #",
		"FILA.RESULT BLOCK":             "FILA.RESULT q $id BLOCK #",
		"FILA.WAITERS CURSOR":           "FILA.WAITERS q CURSOR #",
		"FILA.WAITERS COUNT":            "FILA.WAITERS q COUNT #",
		"FILA.MLEASE numqueues":         "FILA.MLEASE # q none",
		"FILA.MLEASE COUNT":             "FILA.MLEASE 2 none q.dlq COUNT #",
		"FILA.MLEASE BLOCK":             "FILA.MLEASE 1 none BLOCK #",
		"FILA.MLEASE VISIBILITY":        "FILA.MLEASE 2 q none VISIBILITY #",
		"FILA.NACK DELAY":               "FILA.NACK q $lease DELAY #",
		"FILA.NACK ms":                  "FILA.NACK q $lease HOLD t #",
		"FILA.NACK USED":                "FILA.NACK q $lease USED #",
		"FILA.ACK USED":                 "FILA.ACK q $lease USED #",
		"FILA.ENQUEUE CHARGE":           "FILA.ENQUEUE q x BUDGET b CHARGE #",
		"FILA.REDRIVE COUNT":            "FILA.REDRIVE q.dlq COUNT #",
		"FILA.REDRIVE RATE":             "FILA.REDRIVE q.dlq RATE #",
		"FILA.REDRIVE SINCE":            "FILA.REDRIVE q.dlq SINCE #",
		"FILA.REDRIVE UNTIL":            "FILA.REDRIVE q.dlq UNTIL #",
		"FILA.RESCHEDULE ms":            "FILA.RESCHEDULE q $id #",
		"FILA.SCRIPT TEST WEIGHT":       "FILA.SCRIPT TEST q ON_ENQUEUE WEIGHT #",
		"FILA.SCRIPT TEST PAYLOADSIZE":  "FILA.SCRIPT TEST q ON_ENQUEUE PAYLOADSIZE #",
		"FILA.SCRIPT TEST ATTEMPT":      "FILA.SCRIPT TEST q ON_FAILURE ATTEMPT #",
		"FILA.SCRIPT TEST CHARGE":       "FILA.SCRIPT TEST q ON_ENQUEUE CHARGE #",
		"FILA.SIGNAL ADD value":         "FILA.SIGNAL ADD s n #",
		"FILA.SIGNAL ADD AT":            "FILA.SIGNAL ADD s n 1 AT #",
		"FILA.SIGNAL LIST CURSOR":       "FILA.SIGNAL LIST CURSOR #",
		"FILA.SIGNAL LIST COUNT":        "FILA.SIGNAL LIST COUNT #",
		"FILA.BUDGET CHARGE n":          "FILA.BUDGET CHARGE b #",
		"FILA.BUDGET CREDIT n":          "FILA.BUDGET CREDIT b #",
		"FILA.AUDIT CURSOR":             "FILA.AUDIT CURSOR #",
		"FILA.AUDIT COUNT":              "FILA.AUDIT COUNT #",
		"FILA.BUDGET HISTORY CURSOR":    "FILA.BUDGET HISTORY b CURSOR #",
		"FILA.BUDGET HISTORY COUNT":     "FILA.BUDGET HISTORY b COUNT #",
		"FILA.BUDGET LIST CURSOR":       "FILA.BUDGET LIST CURSOR #",
		"FILA.BUDGET LIST COUNT":        "FILA.BUDGET LIST COUNT #",
		"FILA.BUDGET SET DEBT":          "FILA.BUDGET SET b DEBT #",
		"FILA.BUDGET SET LOW":           "FILA.BUDGET SET b LOW #",
		"FILA.BUDGET SET REFILL":        "FILA.BUDGET SET b REFILL # EVERY @daily",
		"FILA.BUDGET SET MAX":           "FILA.BUDGET SET b REFILL 1 EVERY @daily MAX #",
		"FILA.THROTTLE LIST CURSOR":     "FILA.THROTTLE LIST CURSOR #",
		"FILA.THROTTLE LIST COUNT":      "FILA.THROTTLE LIST COUNT #",
		"FILA.THROTTLE HOLD ms":         "FILA.THROTTLE HOLD t #",
		"FILA.THROTTLE SET RATE":        "FILA.THROTTLE SET t RATE #",
		"FILA.THROTTLE SET BURST":       "FILA.THROTTLE SET t RATE 1 BURST #",
		"FILA.THROTTLE SET CONCURRENCY": "FILA.THROTTLE SET t CONCURRENCY #",
		"FILA.THROTTLE SET MIN":         "FILA.THROTTLE SET t CONCURRENCY 1000000000 ADAPTIVE MIN #",
		"HELLO protover":                "HELLO #",
		"MEMORY USAGE SAMPLES":          "MEMORY USAGE q SAMPLES #",
		"SCAN COUNT":                    "SCAN 0 COUNT #",
		"SELECT index":                  "SELECT #",
		"SLOWLOG GET count":             "SLOWLOG GET #",
		"WAIT numreplicas":              "WAIT # 0",
		"WAIT timeout":                  "WAIT 0 #",
		"FILA.ENQUEUE AT":               "FILA.ENQUEUE q x AT #",
		"FILA.PUBLISH AT":               "FILA.PUBLISH topic x AT #",
		"FILA.PUBLISH CHARGE":           "FILA.PUBLISH topic x BUDGET b CHARGE #",
		"FILA.TOPIC LIST CURSOR":        "FILA.TOPIC LIST CURSOR #",
		"FILA.TOPIC LIST COUNT":         "FILA.TOPIC LIST COUNT #",
		"FILA.CRON SET @every":          "FILA.CRON SET c q '@every #s' x",
		"FILA.CRON SET @every ms":       "FILA.CRON SET c q '@every #ms' x",
		"FILA.CRON SET minute":          "FILA.CRON SET c q '# * * * *' x",
		"FILA.CRON SET step":            "FILA.CRON SET c q '*/# * * * *' x",
		"FILA.CRON SET day":             "FILA.CRON SET c q '0 0 L-# * *' x",
		"FILA.CRON SET CHARGE":          "FILA.CRON SET c q '@every 1s' x BUDGET b CHARGE #",
		"FILA.QUEUE APPLY attempts":     `FILA.QUEUE APPLY '{"queues":[{"name":"q","max_attempts":#}]}'`,
		"FILA.QUEUE APPLY ttl":          `FILA.QUEUE APPLY '{"queues":[{"name":"q","ttl_ms":#}]}'`,
		"FILA.QUEUE APPLY depth":        `FILA.QUEUE APPLY '{"queues":[{"name":"q","max_depth":#}]}'`,
		"SCAN cursor":                   "SCAN #",
		"CONFIG SET slowlog":            "CONFIG SET slowlog-log-slower-than #",
		"CONFIG SET length":             "CONFIG SET slowlog-max-len #",
		"CONFIG SET latency":            "CONFIG SET latency-monitor-threshold #",
		"FILA.BROWSE cursor":            "FILA.BROWSE q CURSOR #",
		"a receipt":                     "FILA.ACK q 018f5e8a-7c00-7abc-8def-0123456789ab:#",
		"a setting that a hook reads":   "FILA.CONFIG SET delay #",
	}
	for _, row := range queueset.All() {
		if row.Unit == queueset.Switch {
			continue
		}
		all["FILA.QUEUE CREATE "+row.Token] = "FILA.QUEUE CREATE other " + row.Token + " #"
		all["FILA.QUEUE ALTER "+row.Token] = "FILA.QUEUE ALTER q " + row.Token + " #"
	}
	for _, option := range []string{"WEIGHT", "COST", "PRIORITY", "DELAY", "TTL"} {
		all["FILA.ENQUEUE "+option] = "FILA.ENQUEUE q x KEY k " + option + " #"
		all["FILA.PUBLISH "+option] = "FILA.PUBLISH topic x KEY k " + option + " #"
		all["FILA.GROUP OPEN "+option] = "FILA.GROUP OPEN g q x KEY k " + option + " #"
		all["FILA.CRON SET "+option] = "FILA.CRON SET c q '@every 1s' x " + option + " #"
	}
	for _, option := range []string{"MAXATTEMPTS", "BACKOFF", "MAXBACKOFF"} {
		all["FILA.ENQUEUE "+option] = "FILA.ENQUEUE q x " + option + " #"
		all["FILA.PUBLISH "+option] = "FILA.PUBLISH topic x " + option + " #"
		all["FILA.GROUP OPEN "+option] = "FILA.GROUP OPEN g q x " + option + " #"
		all["FILA.CRON SET "+option] = "FILA.CRON SET c q '@every 1s' x " + option + " #"
		all["FILA.SCRIPT TEST "+option] = "FILA.SCRIPT TEST q ON_ENQUEUE " + option + " #"
	}
	all["FILA.ENQUEUE MAXDELAY"] = "FILA.ENQUEUE q x KEY k UNIQUE u REPLACE MAXDELAY #"
	all["FILA.PUBLISH MAXDELAY"] = "FILA.PUBLISH topic x KEY k UNIQUE u REPLACE MAXDELAY #"
	all["FILA.CRON SET MAXDELAY"] = "FILA.CRON SET c q '@every 1s' x UNIQUE u REPLACE MAXDELAY #"
	return all
}

// edges are numbers at which a conversion may go wrong, and what only looks like a number.
func edges() []string {
	return []string{
		"-9223372036854775809", "-9223372036854775808", "-9223372036855", "-4294967296", "-2", "-1", "-0", "0", "1", "2", "9", "10", "59", "60", "100",
		"1000000", "1000001", "2147483647", "2147483648", "4294967295", "4294967296", "9007199254740993",
		"3153600000", "3153600001", "3153599999999", "3153600000000", "3153600000001", "6307200000000", "6307200000001",
		"9223372036", "9223372037", "9223372036854", "9223372036855", "18446744073709", "18446744073710", "9223372036854775807", "9223372036854775808",
		"18446744073709551615", "18446744073709551616", "99999999999999999999999999", strings.Repeat("9", 400),
		"0.5", "1.5", "1e3", "1e19", "1e308", "1e309", "-1e309", "1e-9", "1e-12", "1e-320", "1e-400", "-0.0", "NaN", "-NaN", "Inf", "+Inf", "-Inf", "Infinity",
		"0x10", "0b1", "1_000", "+1", "01", " 1", "1 ", "", "-", ".", "e", "1e", "%d", "\u0663",
	}
}

// argument returns the words of a command, with those between ' as one.
func argument(command string) []string {
	var words []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// numbersServer has a queue q with messages of every kind.
func numbersServer(t *testing.T) (s *server, names *strings.Replacer) {
	t.Helper()
	s = newServer(t, nil)
	for _, c := range []string{
		"FILA.QUEUE CREATE q MAXATTEMPTS 1 DEDUPWINDOW 60000", "FILA.QUEUE CREATE none", "FILA.TOPIC BIND topic q", "FILA.TOPIC BIND topic none",
		"FILA.SCRIPT LOAD q ON_ENQUEUE 'function on_enqueue(msg) return { delay_ms = tonumber(fila.get(\"delay\")) } end'",
		"FILA.SCRIPT LOAD q ON_FAILURE 'function on_failure(msg) return { delay_ms = tonumber(fila.get(\"delay\")) } end'",
		"FILA.ENQUEUE q dead",
	} {
		if got := s.do(t, argument(c)...); got[0] == '-' {
			t.Fatalf("%s: %s", c, got)
		}
	}
	dead := leasedID(t, s.do(t, "FILA.LEASE", "q"))
	s.do(t, "FILA.NACK", "q", dead, "DEAD")
	id := strings.Split(s.do(t, "FILA.ENQUEUE", "q", "delayed", "DELAY", "3600000"), "\r\n")[1]
	s.do(t, "FILA.ENQUEUE", "q", "ready", "KEY", "k")
	lease := leasedID(t, s.do(t, "FILA.LEASE", "q", "VISIBILITY", "3600000"))
	return s, strings.NewReplacer("$id", id, "$lease", lease, "$dead", dead)
}

// leaked matches what a reply must not show: Go's own words.
var leaked = regexp.MustCompile(`strconv\.|invalid syntax|value out of range|parsing "|json:|Go (value|struct)|goroutine|%!|0x[0-9a-f]{6,}|unexpected EOF`) //nolint:gochecknoglobals // of this test

// wrong says what is wrong with a reply, whatever was asked: "" if nothing is.
func wrong(wire string) string {
	for rest := wire; rest != ""; {
		var v reply
		var err error
		if v, rest, err = decode(rest); err != nil {
			return err.Error()
		}
		if why := wrongIn(v, ""); why != "" {
			return why
		}
	}
	if m := leaked.FindString(wire); m != "" {
		return "it shows " + m
	}
	return ""
}

func wrongIn(v reply, name string) string {
	if v.kind == ':' && strings.HasPrefix(v.text, "-") && name != "position" { // -1: in no line
		return name + " is negative: " + v.text
	}
	if v.kind == ':' && (strings.HasSuffix(name, "_at") || name == "lease_until") {
		if ms, _ := strconv.ParseInt(v.text, 10, 64); ms != 0 && (ms < startTime().UnixMilli()-1 || ms > math.MaxInt64/int64(time.Millisecond)) {
			return name + " is at " + v.text
		}
	}
	if v.kind == '$' && isField(name) && (v.text == "NaN" || strings.HasSuffix(v.text, "Inf")) {
		return name + " is " + v.text
	}
	for i, item := range v.items {
		of := ""
		if i%2 == 1 {
			of = v.items[i-1].text
		}
		if why := wrongIn(item, of); why != "" {
			return why
		}
	}
	return ""
}

// isField tells a name in a map from what SLOWLOG shows of a command.
func isField(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// looks show what the numbers have led to.
func looks() []string {
	return []string{
		"FILA.QUEUE INFO q", "FILA.GROUP GET g", "FILA.GROUP LIST", "FILA.STATS q", "FILA.STATS", "FILA.KEYS q", "FILA.KEY GET q k", "FILA.KEY GET q default", "FILA.BROWSE q", "FILA.BROWSE q.dlq", "FILA.CRON GET c", "FILA.THROTTLE GET t",
		"FILA.EXPLAIN q $id", "FILA.EXPLAIN q KEY k", "FILA.EXPLAIN none KEY thr", "FILA.KEYS none", "FILA.GET q $id", "FILA.GET q $lease", "FILA.SCRIPT STATS q", "CONFIG GET *", "SLOWLOG GET -1", "CLIENT LIST", "INFO",
	}
}

// No number makes a command panic, hang, or show a time that no clock reads; none is
// refused in words of the language that Fila is written in.
func TestNoNumberGoesWrong(t *testing.T) {
	all := numberedCommands()
commands:
	for nth, at := range slices.Sorted(maps.Keys(all)) {
		line, values := all[at], edges()
		if testing.Short() { // every sixth, which are others with the next command
			values = slices.DeleteFunc(values, func(v string) bool { return (slices.Index(edges(), v)+nth)%6 != 0 })
		}
		s, names := numbersServer(t)
		for i, value := range values {
			words := argument(names.Replace(line))
			for j := range words {
				words[j] = strings.ReplaceAll(words[j], "#", value)
			}
			c := s.connect(fmt.Sprint(i))
			got := c.do(words...)
			if why := wrong(got); why != "" {
				t.Errorf("%s: %q: %s: %.300q", at, value, why, got)
			}
			if strings.HasPrefix(at, "FILA.THROTTLE SET") {
				for range 3 {
					s.do(t, "FILA.ENQUEUE", "none", "x", "KEY", "thr", "THROTTLE", "t")
				}
				s.do(t, "FILA.LEASE", "none", "COUNT", "2")
			}
			if strings.HasPrefix(at, "a setting") {
				if got := s.do(t, "FILA.ENQUEUE", "q", "x", "TTL", "60000"); got[0] != '$' {
					t.Errorf("the hook returns a delay of %q: %s", value, got)
				}
			}
			if i%8 == 0 {
				s.Advance(1500 * time.Millisecond)
			}
			for _, look := range looks() {
				if i%5 != 0 && i != len(values)-1 {
					break
				}
				got := s.do(t, argument(names.Replace(look))...)
				if why := wrong(got); why != "" {
					t.Errorf("%s: after %q: %s: %s: %.2000q", at, value, look, why, got)
					continue commands
				}
			}
			c.gone()
			delete(s.conns, fmt.Sprint(i))
		}
	}
}

// Each number of the table is tried.
func TestEveryNumberOfTheTableIsTried(t *testing.T) {
	all := numberedCommands()
	eachNumber(func(at string, _ *entry, _ *Arg) {
		if all[at] == "" {
			t.Errorf("there is no command with %s at its limits", at)
		}
	})
}

// eachNumber calls fn for each argument of the table that is a number.
func eachNumber(fn func(at string, c *entry, a *Arg)) {
	var in func(c *entry, args []Arg)
	in = func(c *entry, args []Arg) {
		for i := range args {
			a := &args[i]
			if a.Type == Integer || a.Type == Double {
				name := a.Token
				if name == "" {
					name = a.Name
				}
				fn(c.Display+" "+name, c, a)
			}
			in(c, a.Args)
		}
	}
	for _, c := range command.New(table()).All {
		in(c, c.Spec.Args)
	}
}

// What the table says of a number is what is taken: its least and its most are in range,
// and one beyond is refused.
func TestNumbersAreTakenToTheirBoundsAndNoFurther(t *testing.T) {
	all := numberedCommands()
	eachNumber(func(at string, c *entry, a *Arg) {
		if a.Type != Integer || c.Spec.Loose || !c.Spec.Native() {
			return
		}
		s, names := numbersServer(t)
		try := func(value string) (outOfRange bool) {
			words := argument(names.Replace(all[at]))
			for j := range words {
				words[j] = strings.ReplaceAll(words[j], "#", value)
			}
			conn := s.connect(value)
			defer func() { conn.gone(); delete(s.conns, value) }()
			return strings.HasPrefix(conn.do(words...), "-ERR "+strings.Fields(at)[len(strings.Fields(at))-1]+" must be an integer")
		}
		most := a.Max
		switch most {
		case 0:
			most = math.MaxInt64
		case countLimit:
			most = 10_000
		}
		for _, n := range []int64{a.Min, a.Min + 1, most - 1, most} {
			if n >= a.Min && n <= most && try(strconv.FormatInt(n, 10)) {
				t.Errorf("%s of %d is out of range, the table says %d to %d", at, n, a.Min, most)
			}
		}
		if a.Min > math.MinInt64 && !try(strconv.FormatInt(a.Min-1, 10)) {
			t.Errorf("%s of %d is taken, the least is %d", at, a.Min-1, a.Min)
		}
		if !try(strconv.FormatUint(uint64(most)+1, 10)) {
			t.Errorf("%s of %d is taken, the most is %d", at, uint64(most)+1, most)
		}
	})
}

// A throttle that is named twice is one throttle, so that the limit is on different ones.
func TestARepeatedThrottleCountsOnce(t *testing.T) {
	words := func(n int, more ...string) []string {
		all := []string{"FILA.ENQUEUE", "q", "x"}
		for i := range n {
			all = append(all, "THROTTLE", fmt.Sprint("t", i))
		}
		return append(all, more...)
	}
	many := make([]string, 0, 20_000)
	for range 10_000 {
		many = append(many, "THROTTLE", "t3")
	}
	for _, hook := range []string{"", "function on_enqueue(msg) return { throttle_keys = msg.throttle_keys } end"} {
		s := newServer(t, nil)
		s.do(t, "FILA.QUEUE", "CREATE", "q")
		if hook != "" {
			s.do(t, "FILA.SCRIPT", "LOAD", "q", "ON_ENQUEUE", hook)
		}
		for _, c := range []struct {
			words []string
			want  string
		}{
			{words(16), "$36"}, {words(16, "THROTTLE", "t3"), "$36"}, {words(16, many...), "$36"},
			{words(17), "-TOOBIG too big: 17 different throttle keys, the limit is 16"},
			{words(17, "THROTTLE", "t3"), "-TOOBIG too big: 17 different throttle keys, the limit is 16"},
		} {
			if got := s.do(t, c.words...); !strings.HasPrefix(got, c.want+"\r\n") {
				t.Errorf("hook %q: %d words answer %q, want %q", hook, len(c.words), got, c.want)
			}
		}
		for range 3 {
			if id := leasedID(t, s.do(t, "FILA.LEASE", "q")); strings.Count(s.do(t, "FILA.GET", "q", id), "$2\r\nt3\r\n") != 1 {
				t.Errorf("hook %q: the message names the throttle more than once, or not at all", hook)
			}
		}
	}
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "q")
	s.do(t, "FILA.SCRIPT", "LOAD", "q", "ON_ENQUEUE", "function on_enqueue(msg) return { throttle_keys = {'1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','1','2'} } end")
	s.do(t, "FILA.ENQUEUE", "q", "x")
	wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "q"), map[string]string{"errors": "(integer) 0"})
}

// Nor do the recorded sessions show words of the language that Fila is written in.
func TestNoRecordedReplyShowsGo(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if word := leaked.FindString(line); word != "" && strings.HasPrefix(line, "(error)") {
				t.Errorf("%s shows %s: %s", name, word, line)
			}
		}
	}
}

func TestTheMemoryOfAQueueGrowsWithWhatItHolds(t *testing.T) {
	c := newServer(t, nil).connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	usage := func(args ...string) int {
		n, err := strconv.Atoi(strings.Trim(c.do(append([]string{"MEMORY", "USAGE", "orders"}, args...)...), ":\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	empty := usage()
	const payload, keys, each = 10_000, 20, 5
	for i := range keys * each {
		c.do("FILA.ENQUEUE", "orders", strings.Repeat("x", payload), "KEY", strconv.Itoa(i%keys))
	}
	full := usage("SAMPLES", "0")
	if held := full - empty; held < payload*keys*each || held > 2*payload*keys*each {
		t.Errorf("%d messages of %d bytes are said to take %d", keys*each, payload, held)
	}
	if sampled := usage(); sampled != full { // all keys are alike
		t.Errorf("by sample %d, of all %d", sampled, full)
	}
}

func TestLatencyKeepsTheLongestOfEachSecond(t *testing.T) {
	now := startTime()
	l := telemetry.NewLatency(func() time.Time { return now }, 100*time.Millisecond)
	c := newServer(t, func(cfg *Config) { cfg.Latency, cfg.Now = l, func() time.Time { return now } }).connect("")
	ask := func(want string, args ...string) {
		t.Helper()
		if got := printed(t, c.do(args...)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", strings.Join(args, " "), got, want)
		}
	}
	ask("(empty array)", "LATENCY", "LATEST")
	ask(`"Nothing has taken 100 ms or longer.\n"`, "LATENCY", "DOCTOR")

	l.Observe(engine.ActivityCommit, 99*time.Millisecond) // below
	l.Observe(engine.ActivityCommit, 100*time.Millisecond)
	l.Observe(engine.ActivityCommit, 300*time.Millisecond)
	l.Observe(engine.ActivityCommit, 200*time.Millisecond)
	now = now.Add(time.Second)
	l.Observe(engine.ActivityCommit, 150*time.Millisecond)
	l.Observe(engine.ActivityTurn, 110*time.Millisecond)

	at := func(seconds int64) string { return "(integer) " + strconv.FormatInt(startTime().Unix()+seconds, 10) }
	ask("1) 1) \"commit\"\n   2) "+at(1)+"\n   3) (integer) 150\n   4) (integer) 300\n"+
		"2) 1) \"turn\"\n   2) "+at(1)+"\n   3) (integer) 110\n   4) (integer) 110", "LATENCY", "LATEST")
	ask("1) 1) "+at(0)+"\n   2) (integer) 300\n2) 1) "+at(1)+"\n   2) (integer) 150", "LATENCY", "HISTORY", "commit")
	ask("(empty array)", "LATENCY", "HISTORY", "command")
	if got := c.do("LATENCY", "DOCTOR"); !strings.Contains(got, "in 2 of the seconds kept, the longest 300 ms") || !strings.Contains(got, "in 1 of the seconds kept, the longest 110 ms") {
		t.Errorf("the doctor overlooks something: %s", got)
	}
	ask("(integer) 1", "LATENCY", "RESET", "turn", "nosuch")
	ask("(integer) 1", "LATENCY", "RESET")
	ask("OK", "CONFIG", "SET", "latency-monitor-threshold", "0")
	l.Observe(engine.ActivityTurn, time.Hour)
	ask("(empty array)", "LATENCY", "LATEST")
}

func TestHistogramCountsByPowersOfTwo(t *testing.T) {
	s := newServer(t, nil)
	c := s.connect("")
	ping := s.handler.table.Find([]byte("ping"))
	for _, us := range []int64{3, 4, 7, 8, 100} {
		s.handler.calls.Called(1, ping.Index, time.Duration(us)*time.Microsecond, "")
	}
	got := printed(t, c.do("LATENCY", "HISTOGRAM", "ping", "nosuch"))
	want := `1) "ping"
2) 1) "calls"
   2) (integer) 5
   3) "histogram_usec"
   4)  1) (integer) 4
       2) (integer) 1
       3) (integer) 8
       4) (integer) 3
       5) (integer) 16
       6) (integer) 4
       7) (integer) 32
       8) (integer) 4
       9) (integer) 64
      10) (integer) 4
      11) (integer) 128
      12) (integer) 5`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if got := c.do("INFO", "latencystats"); !strings.Contains(got, "latency_percentiles_usec_ping:p50=7.629,p99=102.648,p99.9=102.648\r\n") {
		t.Errorf("got %s", got)
	}
}

// A queue keeps its limits of scripts; where it has none, those of the configuration hold, which
// may have changed.
func TestTheLimitsOfScriptsSurviveARestart(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "own", "LUAMEMORY", "300000", "BREAKERERRORS", "2")
	s.do(t, "FILA.QUEUE", "CREATE", "plain")
	const source = "function on_enqueue(msg) local t = {} for i = 1, 2000 do t[i] = {} end end"
	for _, q := range []string{"own", "plain"} {
		s.do(t, "FILA.SCRIPT", "LOAD", q, "ON_ENQUEUE", source)
	}
	// fails enqueues until the breaker of a queue's script opens, and returns how often.
	fails := func(queue string) int {
		for n := range 10 {
			if strings.Contains(s.do(t, "FILA.SCRIPT", "STATS", queue), "$4\r\nopen\r\n") {
				return n
			}
			s.do(t, "FILA.ENQUEUE", queue, "x", "HEADER", "n", strconv.Itoa(n))
		}
		return -1
	}
	if own, plain := fails("own"), fails("plain"); own != 2 || plain != -1 {
		t.Errorf("the breakers opened after %d and %d errors, want 2 and none", own, plain)
	}
	scripts, cfg := scripting.DefaultConfig(), engine.DefaultConfig()
	scripts.Timeout, scripts.Memory, scripts.Failures = time.Minute, 400_000, 4 // less than the script takes
	var err error
	if cfg.Scripts, err = scripting.New(scripts); err != nil {
		t.Fatal(err)
	}
	if s.Stepper, err = engine.NewStepper(cfg, s.store, startTime()); err != nil {
		t.Fatal(err)
	}
	wantFields(t, s.do(t, "FILA.QUEUE", "INFO", "own"), map[string]string{
		"lua_timeout_ms": "(integer) 0", "lua_memory_bytes": "(integer) 300000", "breaker_errors": "(integer) 2",
	})
	if own, plain := fails("own"), fails("plain"); own != 2 || plain != 4 {
		t.Errorf("after the restart the breakers opened after %d and %d errors, want 2 and 4", own, plain)
	}
	s.do(t, "FILA.QUEUE", "ALTER", "own", "BREAKERERRORS", "3")
	s.do(t, "FILA.SCRIPT", "LOAD", "own", "ON_ENQUEUE", source)
	if own := fails("own"); own != 3 {
		t.Errorf("altered, the breaker opened after %d errors, want 3", own)
	}
	wantFields(t, s.do(t, "FILA.SCRIPT", "STATS", "own"), map[string]string{"errors": "(integer) 3", "limits": "(integer) 3", "rejected": "(integer) 0"})
}
