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
	groups  []client.Map          // FILA.FIGURES GROUP TROUBLE, with the state of those that wait long
	first   map[string]client.Map // FILA.FIGURES of the first queue of each group
	dropped []client.Map          // the queues that have dropped most
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

// queues finds the queues that have a trouble: one finding for all of them, or for those in each state. The predicates are
// those of one queue and of several.
func (p *patient) queues(trouble, one, many string, advice func(g, first client.Map) string) []finding {
	var all []finding
	for _, g := range p.groups {
		if g.Text("trouble") != trouble {
			continue
		}
		names, _ := g.Get("first").(client.Map)
		if len(names) == 0 {
			continue
		}
		first, n := names[0].Name, g.Int("queues")
		what := first + " " + one
		if n > 1 {
			what = fmt.Sprintf("%d queues %s", n, many)
		}
		what += ": " + counted("%d messages", g.Int("messages"))
		if old := g.Int("oldest_ms"); old > 0 && trouble != "dead" { // it is the age of what is ready, not of dead letters
			what += ", the oldest is ready for " + output.Duration(time.Duration(old)*time.Millisecond)
		}
		lists := ""
		if n > 1 {
			most := make([]string, len(names))
			for i, f := range names {
				most[i] = fmt.Sprintf("%s (%d)", f.Name, client.Int(f.Value))
			}
			what += "; most are in " + strings.Join(most, ", ")
			lists = "; `fila queues list --trouble " + trouble
			if state := g.Text("state"); state != "" {
				lists += " --state " + state
			}
			lists += "` lists them"
		}
		if reason := g.Text("reason"); reason != "" {
			what += ". " + first + ": " + reason
		}
		all = append(all, finding{what, advice(g, p.first[first]) + lists})
	}
	return all
}

// named returns the name of a queue.
func named(q client.Map) string { return q.Text("name") }

func consumers(p *patient) []finding {
	return p.queues("no_consumer", "has no consumer", "have no consumer", func(_, first client.Map) string {
		return "start workers, such as `fila work " + named(first) + " -- PROGRAM`"
	})
}

// waiting finds messages that wait long, by the state that says what to do. That of queues without a consumer is a
// finding already.
func waiting(p *patient) []finding {
	const one, many = "has messages that wait for more than 15 minutes", "have messages that wait for more than 15 minutes"
	return p.queues("late", one, many, func(g, first client.Map) string {
		advice := "`fila keys list " + named(first) + "` shows which keys wait and why"
		switch g.Text("state") {
		case "throttled", "concurrency":
			advice += "; raise the limit if it should be higher, more workers do not help"
		case "held":
			advice += "; `fila throttles release` ends a hold"
		case "no_credit":
			advice += "; `fila budgets credit` or a refill lets them go on"
		case "gathering":
			advice += "; a lower batch_wait lets batches go that are not full"
		case "ordered":
			advice += "; the message that is out holds up the others of its key: `fila explain " + named(first) + " --key KEY` names it"
		case "busy", "ready":
			advice = "add workers"
		case "paused":
			advice += "; `fila keys resume " + named(first) + " KEY` lets a key go on"
		}
		return advice
	})
}

func leases(p *patient) []finding {
	return p.queues("expiring", "has leases that expire, one of twenty or more in the last ten minutes", "have leases that expire, one of twenty or more in the last ten minutes", func(_, _ client.Map) string {
		return "raise the visibility timeout, extend leases, or look for workers that die"
	})
}

func dead(p *patient) []finding {
	return p.queues("dead", "has dead letters", "have dead letters", func(_, first client.Map) string {
		dlq := first.Text("dlq")
		if first.Int("dead_letter") == 1 {
			dlq = named(first)
		}
		return "`fila errors " + dlq + "` groups them, `fila redrive " + dlq + "` moves them back"
	})
}

func dropped(p *patient) []finding {
	var most []string
	for _, q := range p.dropped {
		if n := q.Int("dropped"); n > 0 {
			most = append(most, fmt.Sprintf("%s (%d)", named(q), n))
		}
	}
	if len(most) == 0 {
		return nil
	}
	return one(counted("%d messages that were dead have been dropped, most by ", p.stats.Int("dropped"))+strings.Join(most, ", "),
		"give the queue a dead-letter queue by `fila queues alter "+named(p.dropped[0])+" --dlq NAME`, unless that is meant")
}

func full(p *patient) []finding {
	return p.queues("full", "has room for less than a tenth of what it may hold", "have room for less than a tenth of what they may hold", func(_, _ client.Map) string {
		return "add workers, or raise max_depth: what is full refuses messages"
	})
}

func paused(p *patient) []finding {
	return p.queues("paused", "is paused", "are paused", func(_, first client.Map) string {
		return "`fila queues resume " + named(first) + "` lets it go on"
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
				c.out.Paragraph("", output.Escape(f.what))
				c.out.Paragraph("    ", output.Escape(f.advice))
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
	p := &patient{info: map[string]string{}, config: map[string]string{}, first: map[string]client.Map{}}
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

// examineQueues asks for what is wrong with queues, which the broker finds over all of them.
func (c *call) examineQueues(p *patient) error {
	groups, err := c.troubles(p)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Text("trouble") != "late" {
			p.groups = append(p.groups, g)
			continue
		}
		if err := c.examineLate(p); err != nil {
			return err
		}
	}
	for _, g := range p.groups {
		names, _ := g.Get("first").(client.Map)
		if len(names) == 0 {
			continue
		}
		list, err := c.figures(p, "QUEUE", names[0].Name)
		if err != nil && !Missing(err) {
			return err
		}
		for _, q := range list {
			p.first[names[0].Name] = q
		}
	}
	if p.stats.Int("dropped") > 0 {
		if p.dropped, err = c.figures(p, "BY", "DROPPED", "COUNT", "3"); err != nil {
			return err
		}
	}
	return errors.Join(c.examineTicks(p), c.examineScripts(p))
}

// examineLate asks for the queues whose messages wait long in each state, and why those of the first do.
func (c *call) examineLate(p *patient) error {
	for _, state := range []string{"paused", "gathering", "held", "throttled", "concurrency", "no_credit", "ordered", "busy", "ready", "loading"} {
		groups, err := c.troubles(p, "STATE", state)
		if err != nil {
			return err
		}
		for _, g := range groups {
			if g.Text("trouble") != "late" {
				continue
			}
			g = append(g, client.Field{Name: "state", Value: state})
			if list, err := c.figures(p, "STATE", state, "TROUBLE", "late", "BY", "READY", "COUNT", "1"); err != nil {
				return err
			} else if len(list) > 0 {
				g = append(g, client.Field{Name: "reason", Value: state + ", " + typedCommands().Replace(list[0].Text("reason"))})
			}
			p.groups = append(p.groups, g)
		}
	}
	return nil
}

// troubles returns the troubles of queues in groups, of those that the words select.
func (c *call) troubles(p *patient, words ...string) ([]client.Map, error) {
	return c.figures(p, append([]string{"GROUP", "TROUBLE"}, words...)...)
}

// figures returns a page of FILA.FIGURES.
func (c *call) figures(p *patient, words ...string) ([]client.Map, error) {
	reply, err := c.inquire(p, append([]string{"FILA.FIGURES"}, words...)...)
	page, _ := reply.([]any)
	if err != nil || len(page) != 2 {
		return nil, err
	}
	return client.Maps(page[1]), nil
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
