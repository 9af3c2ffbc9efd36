package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/faisca/fila/internal/progress"
)

// This file has the commands for a store that no broker has open.

// Progress begins to show a piece of work of so many units, and returns how to say that
// one or more are done. total is what is expected: it may be exceeded.
type Progress func(what string, total int64) (done func(n int64))

// CheckReport is what `fila check` has found.
type CheckReport struct {
	Path    string           `json:"path"`
	Files   int              `json:"files"`
	Bytes   int64            `json:"bytes"`
	Records map[string]int64 `json:"records"` // by family
	Queues  []CheckedQueue   `json:"queues"`
	// Digest is the same for stores with the same records; empty: the records were not read.
	Digest   string          `json:"digest,omitempty"`
	Replica  *CheckedReplica `json:"replica,omitempty"` // nil: not the store of a node of a cluster
	Notes    []string        `json:"notes,omitempty"`   // what is unusual and no problem
	Problems []Problem       `json:"problems"`          // at most ProblemsMax
	Count    int64           `json:"problem_count"`
}

// CheckedReplica is how far the store of a node of a cluster has come. Stores of nodes at the same entry
// have the same digest.
type CheckedReplica struct {
	Cluster string `json:"cluster"` // id
	Entry   uint64 `json:"entry"`   // of the replicated log, the newest in the store
}

// CheckedQueue is what a queue holds.
type CheckedQueue struct {
	Name     string `json:"name"`
	Messages int64  `json:"messages"`
	Leased   int64  `json:"leased"`
	Delayed  int64  `json:"delayed"`
	Retried  int64  `json:"retried"`
}

// Problem is something that should not be. What is not known is empty.
type Problem struct {
	File   string `json:"file,omitempty"`
	Family string `json:"family,omitempty"`
	Key    string `json:"key,omitempty"` // hexadecimal; of a file its first key
	Last   string `json:"last_key,omitempty"`
	What   string `json:"what"`
}

// ProblemsMax is how many problems a report lists; all are counted.
const ProblemsMax = 1000

// Add adds a problem.
func (r *CheckReport) Add(p Problem) {
	r.Count++
	if len(r.Problems) < ProblemsMax {
		r.Problems = append(r.Problems, p)
	}
}

// RepairReport is what `fila repair` has done.
type RepairReport struct {
	Path    string `json:"path"`
	Kept    string `json:"kept"` // where the damaged store is now; empty: nothing was to be done
	Records int64  `json:"records"`
	// MayReturn is how many messages at most were deleted before and are there again.
	MayReturn int64       `json:"may_return"`
	Before    CheckReport `json:"before"`
	Notes     []string    `json:"notes"` // what was lost or changed
	Count     int64       `json:"note_count"`
	After     CheckReport `json:"after"`
}

// Note adds a line.
func (r *RepairReport) Note(line string) {
	r.Count++
	if len(r.Notes) < ProblemsMax {
		r.Notes = append(r.Notes, line)
	}
}

func checkCommand(p Program, proc Process) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Verify a data directory or a backup, and change nothing",
		Long: `Reads everything in a data directory, or in a backup, and says what is wrong: the
checksums of all files and, if no table is damaged, every key and every value, and
every reference of one record to another. It changes nothing. No broker may have the
directory open.

The digest is the same for stores with the same records, whatever their files look
like: nodes of a cluster that have stopped at the same entry have the same.

Exit code 0: everything is in order. 1: it is not, or it could not be looked at.`,
		Example: `  fila check ./data
  fila check --json ./data-backups/monday | jq .problems`,
		Args: arguments("DIR"),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := p.Check(args[0], bars(proc))
		if err != nil {
			return fmt.Errorf("check %w", err)
		}
		if asJSON {
			err = writeJSON(cmd.OutOrStdout(), r)
		} else {
			err = r.write(cmd.OutOrStdout())
		}
		if err == nil && r.Count > 0 {
			err = fmt.Errorf("%s is damaged: %d problems; `fila repair %s` saves what can be read, or restore a backup", r.Path, r.Count, r.Path)
		}
		return err
	}
	return cmd
}

func repairCommand(p Program, proc Process) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Make a sound data directory of what can be read of a damaged one",
		Long: `Checks a data directory and, if it is damaged, builds a new one of everything that
can be read. It says what is lost. The damaged directory is kept as
DIR-damaged-<time>, so that nothing is gone that was there: remove it when you are
sure. Twice the space is needed meanwhile. The new directory is made as
DIR-repairing; if the repair is killed, run it again.

What was deleted stays deleted wherever the record of that can be read. Where it is
lost, a message that was acked may come again: the report says how many at most.
Messages of a queue whose record is lost are put into a queue recovered.<number>.`,
		Example: `  fila check ./data
  fila repair ./data`,
		Args: arguments("DIR"),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := p.Repair(args[0], bars(proc))
		if err != nil {
			return fmt.Errorf("repair %w", err)
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), r)
		}
		return r.write(cmd.OutOrStdout())
	}
	return cmd
}

func restoreCommand(p Program, proc Process) *cobra.Command {
	return &cobra.Command{
		Use:   "restore BACKUP DIR",
		Short: "Make a data directory of a backup",
		Long: `Verifies a backup as fila check does, and copies it to DIR, which must be empty or
not exist. Start the broker on it with --storage.path DIR.

Messages that were leased when the backup was made come back when those leases end;
messages acked since come again. Receipts given out since are invalid.`,
		Example: `  fila restore ./data-backups/20260101-030000.000 ./data`,
		Args:    arguments("BACKUP", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := p.Restore(args[0], args[1], bars(proc))
			if err != nil {
				return fmt.Errorf("restore %w", err)
			}
			if r.Count > 0 {
				if err := r.write(cmd.OutOrStdout()); err != nil {
					return err
				}
				return fmt.Errorf("restore %s: the backup is damaged, nothing was restored", args[0])
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored %s to %s: %d records in %d queues\n", args[0], args[1], r.total(), len(r.Queues))
			return err
		},
	}
}

// arguments wants exactly these.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return UsageError{Err: fmt.Errorf("%s takes %s, not %d arguments", cmd.CommandPath(), strings.Join(names, " and "), len(args))}
		}
		return nil
	}
}

// bars shows progress on standard error, where that is a terminal.
func bars(proc Process) Progress {
	w, ok := proc.Stderr.(*os.File)
	ok = ok && onTerminal(w)
	return func(what string, total int64) func(n int64) {
		if !ok {
			return func(int64) {}
		}
		bar, sum := progress.New(w, what, max(total, 1)), int64(0)
		return func(n int64) {
			before := sum
			if sum += n; sum >= total && before < total {
				bar.Set(total)
				bar.Done()
			} else if sum < total && (sum>>10 != before>>10 || n > 1) { // a bar is slower than a record
				bar.Set(sum)
			}
		}
	}
}

func writeJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

func (r *CheckReport) total() int64 {
	n := int64(0)
	for _, records := range r.Records {
		n += records
	}
	return n
}

func (r *CheckReport) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d table files, %d bytes, %d records\n", r.Path, r.Files, r.Bytes, r.total())
	if len(r.Queues) > 0 {
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "queue\tmessages\tleased\tdelayed\tretried")
		for _, q := range r.Queues {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", strconv.Quote(q.Name), q.Messages, q.Leased, q.Delayed, q.Retried)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if r.Replica != nil {
		fmt.Fprintf(&b, "a node of cluster %s, at entry %d of the replicated log\n", r.Replica.Cluster, r.Replica.Entry)
	}
	if r.Digest != "" {
		fmt.Fprintf(&b, "digest %s\n", r.Digest)
	}
	for _, n := range r.Notes {
		b.WriteString("note: " + oneLine(n) + "\n")
	}
	for _, p := range r.Problems {
		b.WriteString(p.String() + "\n")
	}
	if more := r.Count - int64(len(r.Problems)); more > 0 {
		fmt.Fprintf(&b, "and %d more problems\n", more)
	}
	if r.Count == 0 {
		b.WriteString("everything is in order\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String is one line.
func (p *Problem) String() string {
	words := []string{"damaged:"}
	for _, part := range []struct{ name, value string }{{"", p.File}, {"family ", p.Family}, {"key ", p.Key}, {"to ", p.Last}} {
		if part.value != "" {
			words = append(words, part.name+part.value)
		}
	}
	return strings.Join(words, " ") + ": " + oneLine(p.What)
}

func (r *RepairReport) write(w io.Writer) error {
	if r.Kept == "" {
		_, err := fmt.Fprintf(w, "%s: everything is in order, nothing was changed\n", r.Path)
		return err
	}
	if err := r.Before.write(w); err != nil {
		return err
	}
	var b strings.Builder
	for _, n := range r.Notes {
		b.WriteString("repair: " + oneLine(n) + "\n")
	}
	if more := r.Count - int64(len(r.Notes)); more > 0 {
		fmt.Fprintf(&b, "repair: and %d more\n", more)
	}
	if r.MayReturn > 0 {
		fmt.Fprintf(&b, "repair: up to %d messages that were acked, cancelled or purged may come back: the records of that are lost\n", r.MayReturn)
	}
	fmt.Fprintf(&b, "repair: %d records are saved; the damaged store is kept as %s\n", r.Records, r.Kept)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return r.After.write(w)
}
