package commands

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// Replication tells what a node knows of its cluster. It is safe for concurrent use.
type Replication interface {
	// State does not wait.
	State() ReplicationState
	// Await calls done with the number of other nodes that hold everything that this node holds when
	// it is called: as soon as these are n, after the timeout (0: none), or when end is called. done is
	// called once, from any goroutine. Await does not wait, and end may be called several times.
	Await(n int, timeout time.Duration, done func(nodes int)) (end func())
}

// ReplicationState is the state of a node.
type ReplicationState struct {
	Leading  bool
	Host     string // of the leader, for clients; "": no leader is known
	Port     int
	LinkUp   bool          // the leader has been heard of lately
	Heard    time.Duration // since the leader was heard of
	Applied  uint64        // index of the newest entry in the store of this node
	Replicas []Replica     // the other nodes, if this one leads
}

// Replica is another node, as its leader knows it.
type Replica struct {
	Host    string // for clients
	Port    int
	Online  bool // it takes entries as they come
	Applied uint64
	Heard   time.Duration // since it was heard of
}

// upToDate returns how many replicas hold everything that the leader holds.
func (r *ReplicationState) upToDate() (n int) {
	for i := range r.Replicas {
		if r.Replicas[i].Applied >= r.Applied {
			n++
		}
	}
	return n
}

// name returns the name of the role in HELLO; slave is that of a node which does not lead.
func (r *ReplicationState) name(slave string) string {
	if r.Leading {
		return "master"
	}
	return slave
}

// replication returns the state of this node. Without a cluster it leads, and there are no others.
func (h *Handler) replication() ReplicationState {
	if h.cfg.Replication == nil {
		return ReplicationState{Leading: true}
	}
	return h.cfg.Replication.State()
}

func role() Spec {
	return Spec{
		Name: "ROLE", Group: "server", Since: "2.8.12", Complexity: "O(N) where N is the number of nodes", Returns: "array of any",
		Summary: "Returns the role of the server in replication: that of a master, without replicas if there is no cluster, or of a replica.",
		Reply: "An array: master, its offset, and for each replica an array of host, port and offset. " +
			"Of a replica: slave, host and port of its master, connected or connect, its offset. Offsets count the entries of the log.",
		Flags: []string{"noscript", "loading", "stale", "fast"}, ACL: []string{"admin", "dangerous"}, Quiet: true,
		Examples: []Example{{"ROLE", "1) \"master\"\n2) (integer) 0\n3) (empty array)"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			r := s.handler.replication()
			if !r.Leading {
				w.Array(5)
				w.BulkString("slave")
				w.BulkString(r.Host)
				w.Int(int64(r.Port))
				w.BulkString(map[bool]string{true: "connected", false: "connect"}[r.LinkUp])
				w.Int(int64(r.Applied)) //nolint:gosec // an index
				return nil
			}
			w.Array(3)
			w.BulkString("master")
			w.Int(int64(r.Applied)) //nolint:gosec // an index
			w.Array(len(r.Replicas))
			for _, o := range r.Replicas {
				w.Array(3)
				w.BulkString(o.Host)
				w.BulkString(strconv.Itoa(o.Port))
				w.BulkString(strconv.FormatUint(o.Applied, 10))
			}
			return nil
		},
	}
}

func wait() Spec {
	return Spec{
		Name: "WAIT", Group: "generic", Since: "3.0.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Waits until as many replicas have the connection's earlier writes, or for the time in milliseconds, 0 without end. Returns how many have them: 0 without a cluster.",
		Differs: "Replies at once if there is no cluster. With one, a majority of the nodes has what was acknowledged, without WAIT.",
		Flags:   []string{"noscript"}, ACL: []string{"connection"},
		Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
		Args: []Arg{{Name: "numreplicas", Type: Integer, Min: 0}, {Name: "timeout", Type: Integer, Min: 0}},
		Refuse: func(near []byte, integer bool) error {
			if n, ok := command.ParseInt(near); integer && ok && n < 0 {
				return command.Refuse("ERR", "timeout is negative")
			}
			return nil
		},
		Examples: []Example{{"WAIT 1 100", "(integer) 0"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if s.handler.cfg.Replication == nil {
				w.Int(0)
				return nil
			}
			most := int64(math.MaxInt64 / time.Millisecond)
			s.later = &waitReply{
				session: s, nodes: int(min(in.Integer("numreplicas", 0), math.MaxInt32)),
				timeout: time.Duration(min(in.Integer("timeout", 0), most)) * time.Millisecond,
			}
			return nil
		},
	}
}

// waitReply is the reply of WAIT. The wait begins when it is the first of the reply queue: then the
// writes before it have been answered, so this node holds them.
type waitReply struct {
	session *Session
	nodes   int
	timeout time.Duration
	silent  bool // the client has turned replies off

	begin sync.Once
	end   func()
	done  atomic.Bool
	count int // written before done
}

// Ready begins the wait. It is called for the first of the reply queue only.
func (r *waitReply) Ready() bool {
	r.begin.Do(func() {
		r.end = r.session.handler.cfg.Replication.Await(r.nodes, r.timeout, func(nodes int) {
			r.count = nodes
			r.done.Store(true)
			r.session.conn.Wake()
		})
		r.session.awaits.Store(r)
		if r.session.left.Load() { // before it was stored
			r.end()
		}
	})
	return r.done.Load()
}

// Append writes the number of nodes.
func (r *waitReply) Append(w *resp.Writer) {
	if !r.silent {
		w.Int(int64(r.count))
	}
}

// Drop does nothing.
func (r *waitReply) Drop() {}

// stopAwaiting ends the wait of a client that is gone.
func (s *Session) stopAwaiting() {
	s.left.Store(true)
	if r := s.awaits.Load(); r != nil {
		r.end()
	}
}

func shutdown() Spec {
	return Spec{
		Name: "SHUTDOWN", Group: "server", Since: "1.0.0", Complexity: "O(1)", Returns: "error",
		Summary: "Stops the server after accepted commands are completed and stored.",
		Differs: "Acknowledged changes are already durable. " +
			"NOSAVE, SAVE, NOW and FORCE are accepted without effect.",
		Flags: []string{"admin", "noscript", "loading", "stale", "no_multi", "allow_busy"},
		Args: []Arg{
			{Name: "nosave_save", Type: OneOf, Optional: true, Args: []Arg{
				{Name: "nosave", Type: PureToken, Token: "NOSAVE"},
				{Name: "save", Type: PureToken, Token: "SAVE"},
			}},
			{Name: "now", Type: PureToken, Token: "NOW", Optional: true},
			{Name: "force", Type: PureToken, Token: "FORCE", Optional: true},
			{Name: "abort", Type: PureToken, Token: "ABORT", Optional: true},
		},
		Examples: []Example{{"SHUTDOWN ABORT", "(error) ERR No shutdown in progress."}},
		Local: func(s *Session, in *input, _ *resp.Writer) error {
			if in.Has("abort") {
				if len(in.Args) > 1 {
					return in.Refuse(in.Args[0], "")
				}
				return command.Refuse("ERR", "No shutdown in progress.")
			}
			if s.handler.cfg.Shutdown == nil {
				return command.Refuse("ERR", "Errors trying to SHUTDOWN. Check logs.")
			}
			s.closing = true // no reply: the connection is closed instead, as in Redis
			s.handler.cfg.Log.Info().Uint64("conn", s.conn.ID()).Msg("shutdown asked for by a client")
			s.handler.cfg.Shutdown()
			return nil
		},
	}
}

func timeNow() Spec {
	return Spec{
		Name: "TIME", Group: "server", Since: "2.6.0", Complexity: "O(1)", Returns: "array (string, string)",
		Summary:  "Returns the server's time: Unix seconds, and the microseconds of the current second.",
		Flags:    []string{"loading", "stale", "fast"},
		Tips:     []string{"nondeterministic_output"},
		Examples: []Example{{"TIME", "..."}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			micros := s.handler.cfg.Now().UnixMicro()
			w.Array(2)
			w.BulkString(strconv.FormatInt(micros/1e6, 10))
			w.BulkString(strconv.FormatInt(micros%1e6, 10))
			return nil
		},
	}
}

func module() Spec {
	return Spec{
		Name: "MODULE", Group: "server", Since: "4.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for module commands.",
		Subcommands: []Spec{help("MODULE"), {
			Name: "LIST", Group: "server", Since: "4.0.0", Complexity: "O(1)", Returns: "array of map",
			Summary:  "Returns the loaded modules: none.",
			Flags:    []string{"admin", "noscript"},
			Tips:     []string{"nondeterministic_output_order"},
			Examples: []Example{{"MODULE LIST", "(empty array)"}},
			Local: func(_ *Session, _ *input, w *resp.Writer) error {
				w.Array(0)
				return nil
			},
		}},
	}
}

func errNoCluster() error { return command.Refuse("ERR", "This instance has cluster support disabled") }

func asking() Spec {
	return Spec{
		Name: "ASKING", Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Returns: "error",
		Summary: "Replies with an error, as a Redis server without cluster mode does.",
		Flags:   []string{"fast"}, ACL: []string{"connection"},
		Examples: []Example{{"ASKING", "(error) ERR This instance has cluster support disabled"}},
		Local:    func(*Session, *input, *resp.Writer) error { return errNoCluster() },
	}
}

func cluster() Spec {
	return Spec{
		Name: "CLUSTER", Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Returns: "error",
		Summary:  "Replies with an error, as a Redis server without cluster mode does.",
		Differs:  "Tools use it to detect a cluster; the error tells them that there is none.",
		Flags:    []string{"stale"},
		Args:     []Arg{{Name: "subcommand", Type: String}, {Name: "argument", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{{"CLUSTER INFO", "(error) ERR This instance has cluster support disabled"}},
		Loose:    true,
		Local: func(*Session, *input, *resp.Writer) error {
			return errNoCluster()
		},
	}
}

func readonly() Spec {
	return Spec{
		Name: "READONLY", Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Does nothing: every connection may read.",
		Differs: "Replies OK without a cluster, where Redis refuses.",
		Flags:   []string{"loading", "stale", "fast"}, ACL: []string{"connection"},
		Examples: []Example{{"READONLY", "OK"}},
		Local:    answerOK,
	}
}

// answerOK replies OK: the command has no effect on this server.
func answerOK(_ *Session, _ *input, w *resp.Writer) error {
	w.OK()
	return nil
}

func readwrite() Spec {
	return Spec{
		Name: "READWRITE", Group: "cluster", Since: "3.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Does nothing: every connection may write.",
		Differs: "Replies OK without a cluster, where Redis refuses.",
		Flags:   []string{"loading", "stale", "fast"}, ACL: []string{"connection"},
		Examples: []Example{{"READWRITE", "OK"}},
		Local:    answerOK,
	}
}

func backup() Spec {
	return Spec{
		Name: "FILA.BACKUP", Group: "fila", Since: "0.1.0", Complexity: "O(1); off-loop O(N) where N is the number of files of the store, or their size if they have to be copied",
		Returns: "map",
		Summary: "Makes an online backup of the store in a directory of that name below storage.backup_path, and replies when it is durable. " +
			"It is a consistent snapshot with everything acknowledged before. `fila restore` turns it into a data directory, see docs/backup.md.",
		Reply: "A map: " + backupFields(&engine.BackupResult{}).names() + ".",
		Flags: []string{"admin", "noscript", "no_multi"},
		Args:  []Arg{{Name: "name", Type: String}},
		Examples: []Example{
			{"FILA.BACKUP monday", "..."},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			name := in.Text("name")
			if name == "" {
				return nil, command.Refuse("INVALID", "the name of a backup must not be empty; BGSAVE makes one that is named after the time")
			}
			return &backupCall{req: engine.Backup{Name: name, Wait: true}}, nil
		},
	}
}

type backupCall struct {
	req    engine.Backup
	result engine.BackupResult
}

// Apply implements engine.Call.
func (c *backupCall) Apply(tx *engine.Tx) (err error) {
	c.result, err = tx.Backup(&c.req)
	return err
}

// Render writes the result of the backup.
func (c *backupCall) Render(_ *Handler, w *resp.Writer) error {
	backupFields(&c.result).write(w)
	return nil
}

func backupFields(r *engine.BackupResult) *fields {
	var f fields
	f.text("name", r.Name)
	f.text("path", r.Path)
	f.millis("took_ms", r.Took)
	return &f
}

func bgsave() Spec {
	return Spec{
		Name: "BGSAVE", Group: "server", Since: "1.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Starts a backup of the store, named after the time, below storage.backup_path.",
		Differs: "Makes a backup, see FILA.BACKUP. Acknowledged changes are durable without it. SCHEDULE is accepted without effect.",
		Flags:   []string{"admin", "noscript", "no_async_loading"},
		Args:    []Arg{{Name: "schedule", Type: PureToken, Token: "SCHEDULE", Optional: true}},
		Examples: []Example{
			{"BGSAVE", "..."},
			{"BGSAVE SCHEDULE NOW", "(error) ERR syntax error"},
		},
		Parse: func(*Session, *input) (call, error) { return &bgsaveCall{}, nil },
	}
}

type bgsaveCall struct{}

// Apply implements engine.Call.
func (c *bgsaveCall) Apply(tx *engine.Tx) error {
	_, err := tx.Backup(&engine.Backup{})
	if errors.Is(err, engine.ErrBackupRunning) {
		return command.Refuse("ERR", "Background save already in progress")
	}
	return err
}

// Render confirms that the backup has begun.
func (c *bgsaveCall) Render(_ *Handler, w *resp.Writer) error {
	w.Status("Background saving started")
	return nil
}

func lastsave() Spec {
	return Spec{
		Name: "LASTSAVE", Group: "server", Since: "1.0.0", Complexity: "O(1)", Returns: "integer",
		Summary:  "Returns the Unix time in seconds of the newest complete backup.",
		Differs:  "0 if there is none; the start of the server does not count.",
		Flags:    []string{"loading", "stale", "fast"},
		ACL:      []string{"admin", "dangerous"},
		Quiet:    true,
		Tips:     []string{"nondeterministic_output"},
		Examples: []Example{{"LASTSAVE", "(integer) 0"}},
		Parse:    func(*Session, *input) (call, error) { return &lastsaveCall{}, nil },
	}
}

type lastsaveCall struct{ at time.Time }

// Apply implements engine.Call.
func (c *lastsaveCall) Apply(tx *engine.Tx) error {
	c.at = tx.Backups().LastAt
	return nil
}

// Render writes the seconds.
func (c *lastsaveCall) Render(_ *Handler, w *resp.Writer) error {
	w.Int(unixSeconds(c.at))
	return nil
}

// unixSeconds returns Unix seconds, 0 for the zero time.
func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// backups adds the state of backups under the names that Redis has for its snapshots.
func (f *fields) backups(s *engine.Stats) {
	b, status, last, current := &s.Backup, "ok", int64(-1), int64(-1)
	if b.Failed {
		status = "err"
	}
	if b.Took > 0 {
		last = int64(b.Took / time.Second)
	}
	if b.Running {
		current = int64(max(s.Now.Sub(b.Since), 0) / time.Second)
	}
	f.flag("rdb_bgsave_in_progress", b.Running)
	f.number("rdb_last_save_time", unixSeconds(b.LastAt))
	f.text("rdb_last_bgsave_status", status)
	f.number("rdb_last_bgsave_time_sec", last)
	f.number("rdb_current_bgsave_time_sec", current)
}
