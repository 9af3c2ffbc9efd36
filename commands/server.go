package commands

import (
	"errors"
	"strconv"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

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
	return container("MODULE", "server", "4.0.0", "module commands", Spec{
		Name: "LIST", Group: "server", Since: "4.0.0", Complexity: "O(1)", Returns: "array of map",
		Summary:  "Returns the loaded modules: none.",
		Flags:    []string{"admin", "noscript"},
		Tips:     []string{"nondeterministic_output_order"},
		Examples: []Example{{"MODULE LIST", "(empty array)"}},
		Local: func(_ *Session, _ *input, w *resp.Writer) error {
			w.Array(0)
			return nil
		},
	})
}

func backup() Spec {
	return Spec{
		Name: "FILA.BACKUP", Group: "fila", Since: "0.1.0", Complexity: "O(1); off-loop O(N) where N is the number of files of the store, or their size if they have to be copied",
		Returns: "map",
		Summary: "Makes an online backup of the store in a directory of that name below storage.backup_path, and replies when it is durable. " +
			"It is a consistent snapshot with everything acknowledged before. `fila restore` turns it into a data directory, see docs/how-to/backup.md.",
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
			req := engine.Backup{Name: name, Wait: true}
			return answerMap(func(tx *engine.Tx) (engine.BackupResult, error) { return tx.Backup(&req) }, backupFields), nil
		},
	}
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
		Parse: func(*Session, *input) (call, error) {
			return &answered[string]{take: func(tx *engine.Tx) (string, error) {
				_, err := tx.Backup(&engine.Backup{})
				if errors.Is(err, engine.ErrBackupRunning) {
					err = command.Refuse("ERR", "Background save already in progress")
				}
				return "Background saving started", err
			}, write: (*resp.Writer).Status}, nil
		},
	}
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
		Parse: func(*Session, *input) (call, error) {
			return answerInt(func(tx *engine.Tx) (int64, error) { return unixSeconds(tx.Backups().LastAt), nil }), nil
		},
	}
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
