package remote

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

// checkRows are the commands that judge a broker.
func checkRows() []row {
	return []row{{
		name: "doctor", short: "Look for what is wrong with a broker, and say what to do",
		long: `Each finding is a sentence with what to do about it, the urgent ones first. The exit code
is 3 if there are any. What the user has no right to look at is left out and named.

Of a cluster, ask any node: it says what it knows of all nodes, also without a leader. What
each has by itself, such as its disk and its certificate, is that of the node that you ask.`,
		run: (*call).doctor, columns: "check finding advice",
		examples: []string{"fila doctor", "fila doctor -o json"},
	}}
}

// patient is what the doctor looks at.
type patient struct {
	now     time.Time
	info    map[string]string
	stats   client.Map
	config  map[string]string
	queues  []client.Map // FILA.QUEUE INFO
	oldest  map[string]time.Duration
	by      map[string]client.Map // FILA.STATS of each queue
	scripts []client.Map          // FILA.SCRIPT STATS
	ticks   []string              // recurring messages and refills that never tick again, and why
	users   []client.Map
	nodes   []client.Map // FILA.CLUSTER STATUS; none of a broker that is no node
	time    time.Time    // the broker's
	took    time.Duration
	cert    time.Time // the end of its certificate; zero without TLS
	denied  []string
}

// finding is something that is wrong.
type finding struct{ what, advice string }

// check is one kind of finding.
type check struct {
	name string
	look func(p *patient) []finding
}

func one(what, advice string) []finding { return []finding{{what, advice}} }

// checks are all, the urgent first.
func checks() []check {
	return append(clusterChecks(), []check{
		{"writable", writable}, {"memory", memory}, {"recoveries", recoveries}, {"disk", disk}, {"power", power}, {"backup", backupAge}, {"open", open}, {"certificate", certificate},
		{"clients", connections}, {"clock", clock}, {"consumers", consumers}, {"waiting", waiting}, {"leases", leases}, {"dead", dead}, {"dropped", dropped}, {"full", full}, {"paused", paused}, {"ticks", ticks}, {"scripts", scripts},
	}...)
}

func writable(p *patient) []finding {
	switch {
	case !p.led(): // for that reason alone; the check of the leader says so
	case p.info["loading"] == "1":
		return one("the broker is recovering its queues, or stopping", "wait; its log says how far it is")
	case p.info["writable"] == "0":
		return one("the broker takes no writes", "look into its log: the disk is full or fails")
	}
	return nil
}

func memory(p *patient) []finding {
	const mib = 1 << 20
	used, limit, held := p.stats.Int("memory_used")/mib, p.stats.Int("memory_limit")/mib, p.stats.Int("memory_held")/mib
	what := fmt.Sprintf("%d of %d MiB of memory are used, %d of them by %d fairness keys with their messages", used, limit, held, p.stats.Int("keys"))
	switch {
	case p.stats.Int("memory_full") == 1:
		return one(what+": new messages are refused with OOM", "start more workers, purge what is not needed, or raise the limit of the container or server.memory_bytes")
	case limit > 0 && used*4 >= limit*3:
		return one(what, "new messages are refused with OOM from 85 % on: start more workers, or raise the limit")
	}
	return nil
}

func recoveries(p *patient) []finding {
	if n := p.stats.Int("recoveries"); n > 0 {
		return one(fmt.Sprintf("commits have failed: the broker has recovered from the disk %d times", n), "check the disk; the log has the errors")
	}
	return nil
}

// disk judges the free space of the store's disk. A compaction needs room beside the tables that
// it replaces: a tenth of the store is little, and so is less than 1 GiB.
func disk(p *patient) []finding {
	const gib = 1 << 30
	size, known := p.info["store_bytes"]
	free := client.Float(p.info["store_free_bytes"])
	if !known || free >= max(gib, client.Float(size)/10) {
		return nil
	}
	return one(fmt.Sprintf("%.1f GiB of the disk are free, and the store has %.1f GiB", free/gib, client.Float(size)/gib),
		"free space, or move storage.path to a larger disk")
}

func power(p *patient) []finding {
	switch {
	case p.config["storage.engine"] == "memory":
		return one("storage.engine is memory: a restart loses everything", "use rocksdb for what must not be lost")
	case p.config["storage.sync"] == "never" || p.config["storage.sync"] == "interval":
		return one("storage.sync is "+p.config["storage.sync"]+": a power cut loses what was acknowledged last", "set it to always, unless that was decided")
	}
	return nil
}

func backupAge(p *patient) []finding {
	const old = 2 * 24 * time.Hour
	if p.config["storage.engine"] == "memory" || p.info["rdb_last_save_time"] == "" || p.info["role"] == "slave" {
		return nil // the node that leads makes them
	}
	last := client.Int(p.info["rdb_last_save_time"])
	if last == 0 {
		return one("there was no backup since the broker started", "make one by `fila backup`, see docs/how-to/backup.md")
	}
	if age := p.now.Sub(time.Unix(last, 0)); age > old {
		return one("the last backup is "+output.Duration(age)+" old", "make one by `fila backup`, and regularly")
	}
	return nil
}

// open finds a broker that other machines reach, and where the default user needs no password.
func open(p *patient) []finding {
	host, _, err := net.SplitHostPort(p.config["server.listen_addr"])
	if err != nil || loopback(host) {
		return nil
	}
	for _, u := range p.users {
		flags := client.Texts(u.Get("flags"))
		if u.Text("user") == "default" && slices.Contains(flags, "nopass") && slices.Contains(flags, "on") && u.Text("commands") != "-@all" {
			return one("other machines reach "+p.config["server.listen_addr"]+", and the user default needs no password", "set auth.password, or listen on 127.0.0.1")
		}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func certificate(p *patient) []finding {
	const soon = 14 * 24 * time.Hour
	if left := p.cert.Sub(p.now); !p.cert.IsZero() && left < soon {
		return one("the broker's certificate ends in "+output.Duration(left), "renew it; the broker reads it again by itself")
	}
	return nil
}

func connections(p *patient) []finding {
	n, most := client.Float(p.info["connected_clients"]), client.Float(p.info["maxclients"])
	const much = 0.8
	if most > 0 && n/most > much {
		return one(fmt.Sprintf("%.0f of at most %.0f clients are connected", n, most), "raise server.maxclients, or find who connects by `fila clients list`")
	}
	return nil
}

func clock(p *patient) []finding {
	const far = 5 * time.Second
	if off := p.time.Sub(p.now).Abs(); !p.time.IsZero() && off > far+p.took {
		return one("the clocks of the broker and of this machine differ by "+output.Duration(off), "synchronize them; AT and times in outputs depend on it")
	}
	return nil
}

// each looks at all queues.
func (p *patient) each(look func(name string, q client.Map) (what, advice string)) []finding {
	var all []finding
	for _, q := range p.queues {
		if what, advice := look(q.Text("name"), q); what != "" {
			all = append(all, finding{what, advice})
		}
	}
	return all
}

func consumers(p *patient) []finding {
	return p.each(func(name string, q client.Map) (string, string) {
		if q.Int("is_dlq") == 1 || p.by[name].Text("state") != "no_consumer" {
			return "", ""
		}
		return fmt.Sprintf("%s has %d ready messages and no consumer", name, q.Int("ready")), "start a worker, such as `fila work " + name + " -- PROGRAM`"
	})
}

func waiting(p *patient) []finding {
	const long = 15 * time.Minute
	return p.each(func(name string, q client.Map) (string, string) {
		old, state := p.oldest[name], p.by[name].Text("state")
		if q.Int("is_dlq") == 1 || old <= long || state == "paused" { // the check of pauses says so
			return "", ""
		}
		what, advice := "a message of "+name+" waits for "+output.Duration(old), "`fila keys list "+name+"` shows which keys wait and why"
		if reason := p.by[name].Text("reason"); reason != "" {
			what += ": " + state + ", " + reason
		}
		switch state {
		case "throttled", "concurrency":
			advice += "; raise the limit if it should be higher, more workers do not help"
		case "held":
			advice += "; `fila throttles release` ends a hold"
		case "no_credit":
			advice += "; `fila budgets credit` or a refill lets them go on"
		case "busy", "no_consumer":
			advice = "add workers"
		}
		return what, advice
	})
}

func leases(p *patient) []finding {
	return p.each(func(name string, q client.Map) (string, string) {
		const some, share = 20, 20 // a twentieth of the deliveries, of at least so many
		if n := q.Int("delivered"); n >= some && q.Int("expired")*share > n {
			return fmt.Sprintf("%d of %d leases of %s have expired", q.Int("expired"), n, name), "raise its visibility timeout, extend leases, or look for workers that die"
		}
		return "", ""
	})
}

func dead(p *patient) []finding {
	return p.each(func(name string, q client.Map) (string, string) {
		if n := q.Int("dead"); n > 0 {
			return fmt.Sprintf("%s holds %d dead messages", name, n), "`fila errors " + name + "` groups them, `fila redrive " + name + "` moves them back"
		}
		return "", ""
	})
}

func dropped(p *patient) []finding {
	return p.each(func(name string, q client.Map) (string, string) {
		if n := q.Int("dropped"); n > 0 {
			return fmt.Sprintf("%s has dropped %d messages that were dead", name, n), "give it a dead-letter queue by `fila queues alter " + name + " --dlq NAME`, unless that is meant"
		}
		return "", ""
	})
}

func full(p *patient) []finding {
	return p.each(func(name string, q client.Map) (string, string) {
		const nearly = 0.9
		held := q.Float("ready") + q.Float("delayed") + q.Float("leased")
		if most := q.Float("max_depth"); most > 0 && held/most > nearly {
			return fmt.Sprintf("%s holds %.0f of at most %.0f messages", name, held, most), "add workers, or raise max_depth"
		}
		return "", ""
	})
}

func paused(p *patient) []finding {
	return p.each(func(name string, q client.Map) (string, string) {
		var sides []string
		for _, side := range []string{"in", "out"} {
			if q.Int("paused_"+side) == 1 {
				sides = append(sides, side)
			}
		}
		if len(sides) == 0 {
			return "", ""
		}
		return name + " is paused (" + strings.Join(sides, " and ") + ")", "`fila queues resume " + name + "` lets it go on"
	})
}

func ticks(p *patient) []finding {
	var all []finding
	for _, what := range p.ticks {
		all = append(all, finding{what, "if its zone is missing, install it (package tzdata) and start the broker again"})
	}
	return all
}

func scripts(p *patient) []finding {
	var all []finding
	for _, s := range p.scripts {
		name := s.Text("hook") + " of " + s.Text("queue")
		switch {
		case s.Text("state") != "closed":
			all = append(all, finding{name + " fails and is not run: " + s.Text("last_error"), "correct it and push it again"})
		case s.Int("errors") > 0:
			all = append(all, finding{fmt.Sprintf("%s has failed %d times, the last with %s", name, s.Int("errors"), s.Text("last_error")), "correct it and push it again"})
		}
	}
	return all
}

// doctor looks at everything, and prints what it finds.
func (c *call) doctor() error {
	p, err := c.examine()
	if err != nil {
		return err
	}
	rows := c.rows()
	found := 0
	for _, k := range checks() {
		for _, f := range k.look(p) {
			found++
			if c.out.People() { // sentences are too long for a table
				c.out.Say("%s\n    %s", output.Escape(f.what), output.Escape(f.advice))
				continue
			}
			rows.Add(client.Map{{Name: "check", Value: k.name}, {Name: "finding", Value: f.what}, {Name: "advice", Value: f.advice}})
		}
	}
	if len(p.denied) > 0 {
		fmt.Fprintf(c.env.Stderr, "fila: not looked at, as the user has no right to it: %s\n", strings.Join(p.denied, ", "))
	}
	if found > 0 {
		if !c.out.People() {
			rows.Close("")
		}
		return ErrFindings
	}
	rows.Close(fmt.Sprintf("%d checks, and nothing found", len(checks())))
	return nil
}

// inquire sends a command whose right the user may lack.
func (c *call) inquire(p *patient, words ...string) (any, error) {
	reply, err := c.do(words...)
	if client.Refused(err, "NOPERM") {
		p.denied = append(p.denied, strings.Join(words, " "))
		return nil, nil
	}
	return reply, err
}

// examine asks the broker for what the checks look at.
func (c *call) examine() (*patient, error) {
	p := &patient{info: map[string]string{}, config: map[string]string{}, oldest: map[string]time.Duration{}, by: map[string]client.Map{}}
	begin := c.now()
	reply, err := c.inquire(p, "TIME")
	if err != nil {
		return nil, err
	}
	p.now = c.now()
	p.took = p.now.Sub(begin)
	if parts := client.Texts(reply); len(parts) > 0 {
		p.time = time.Unix(client.Int(parts[0]), 0)
	}
	if certs := c.conn.Certificates(); len(certs) > 0 {
		p.cert = certs[0].NotAfter
	}
	if reply, err = c.inquire(p, "INFO"); err != nil {
		return nil, err
	}
	for line := range strings.Lines(client.Text(reply)) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			p.info[name] = text
		}
	}
	if reply, err = c.inquire(p, "CONFIG", "GET", "*"); err != nil {
		return nil, err
	}
	if m, ok := reply.(client.Map); ok {
		for _, f := range m {
			p.config[f.Name] = client.Text(f.Value)
		}
	}
	if p.info["cluster_name"] != "" {
		if reply, err = c.inquire(p, "FILA.CLUSTER", "STATUS"); err != nil {
			return nil, err
		}
		p.nodes = client.Maps(reply)
	}
	if !p.led() { // what is left needs a leader
		return p, c.examineUsers(p)
	}
	if reply, err = c.inquire(p, "FILA.STATS"); err != nil {
		return nil, err
	}
	p.stats, _ = reply.(client.Map)
	return p, errors.Join(c.examineUsers(p), c.examineQueues(p))
}

func (c *call) examineUsers(p *patient) error {
	reply, err := c.inquire(p, "ACL", "GETUSER", defaultUser)
	if m, ok := reply.(client.Map); ok {
		p.users = append(p.users, append(client.Map{{Name: "user", Value: defaultUser}}, m...))
	}
	return err
}

// oldestMax is of how many queues the age of the oldest message is asked for: that takes the broker
// some time where a queue has many keys.
const oldestMax = 50

func (c *call) examineQueues(p *patient) error {
	reply, err := c.inquire(p, "FILA.QUEUE", "LIST")
	if err != nil {
		return err
	}
	err = c.each(client.Texts(reply), func(name string) []string { return []string{"FILA.QUEUE", "INFO", name} }, func(_ string, v any) error {
		if m, ok := v.(client.Map); ok {
			p.queues = append(p.queues, m)
		}
		return nil
	})
	if err != nil {
		return err
	}
	asked := 0
	for _, q := range p.queues {
		if asked == oldestMax || q.Int("ready") == 0 {
			continue
		}
		asked++
		name := q.Text("name")
		reply, err := c.inquire(p, "FILA.STATS", name)
		if err != nil && !Missing(err) {
			return err
		}
		if m, ok := reply.(client.Map); ok {
			p.oldest[name] = time.Duration(m.Int("oldest_ms")) * time.Millisecond
			p.by[name] = m
		}
	}
	if err := c.examineTicks(p); err != nil {
		return err
	}
	return c.examineScripts(p)
}

// examineTicks looks for recurring messages and refills without a next tick.
func (c *call) examineTicks(p *patient) error {
	for _, x := range []struct {
		words []string
		why   string // the field that says why there is no next tick
		name  string
	}{
		{[]string{"FILA.CRON", "LIST"}, "last_error", "the recurring message "},
		{[]string{"FILA.BUDGET", "LIST"}, "refill_error", "the refill of budget "},
	} {
		err := c.pages(x.words, func(m client.Map) bool {
			if why := m.Text(x.why); m.Int("next_at") == 0 && why != "" {
				p.ticks = append(p.ticks, x.name+m.Text("name")+" never ticks again: "+why)
			}
			return true
		})
		if client.Refused(err, "NOPERM") {
			p.denied = append(p.denied, strings.Join(x.words, " "))
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *call) examineScripts(p *patient) error {
	reply, err := c.inquire(p, "FILA.SCRIPT", "LIST")
	if err != nil {
		return err
	}
	var queues []string
	for _, m := range client.Maps(reply) {
		if name := m.Text("queue"); !slices.Contains(queues, name) {
			queues = append(queues, name)
		}
	}
	return c.each(queues, func(name string) []string { return []string{"FILA.SCRIPT", "STATS", name} }, func(_ string, v any) error {
		p.scripts = append(p.scripts, client.Maps(v)...)
		return nil
	})
}
