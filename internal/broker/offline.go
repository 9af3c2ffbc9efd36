package broker

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/broker/backup"
	"github.com/faisca/fila/internal/broker/verify"
	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// check verifies a store: first the checksums of its files, then, if all are right, the consistency
// of its records. It only reads.
func check(dir string, progress cli.Progress) (cli.CheckReport, error) {
	i, err := inspect(dir)
	if err != nil {
		return cli.CheckReport{}, err
	}
	defer i.Close()
	report, _, err := verifyStore(dir, i, progress)
	return report, err
}

// inspect opens a store that no broker has open, in whatever condition it is.
func inspect(dir string) (*rocks.Inspection, error) {
	i, err := rocks.Inspect(dir)
	if errors.Is(err, rocks.ErrNoCgo) {
		return nil, cli.UsageError{Err: err}
	}
	return i, err
}

// verifyStore is check for a store that is open, and also returns the damaged tables.
func verifyStore(dir string, i *rocks.Inspection, progress cli.Progress) (cli.CheckReport, []rocks.Damage, error) {
	report := cli.CheckReport{Path: dir, Files: len(i.Tables), Records: map[string]int64{}, Queues: []cli.CheckedQueue{}, Problems: []cli.Problem{}}
	for _, t := range i.Tables {
		report.Bytes += t.Bytes
	}
	if i.Torn != "" {
		report.Notes = append(report.Notes, i.Torn)
	}
	for _, d := range i.Damage {
		report.Add(problemOf(d))
	}
	read := progress("checksums of "+dir+", bytes", report.Bytes)
	records := int64(0)
	damaged := i.VerifyTables(func(t *rocks.Table) {
		records += int64(min(t.Entries, 1<<40))
		read(t.Bytes)
	})
	for _, d := range damaged {
		report.Add(problemOf(d))
	}
	if i.Store == nil || len(damaged) > 0 { // RocksDB may terminate the process where a range deletion ends at a block that it cannot read
		return report, damaged, nil
	}
	err := verifyRecords(&report, i.Store, progress("records of "+dir, records))
	return report, damaged, err
}

// verifyRecords adds the findings and totals of verify.Records to a report.
func verifyRecords(report *cli.CheckReport, store verify.Source, read func(int64)) error {
	is, err := verify.Records(store, func(f verify.Finding) {
		report.Add(cli.Problem{Family: f.Family.String(), Key: hex.EncodeToString(f.Key), What: f.What})
	}, func() { read(1) })
	if err != nil {
		return fmt.Errorf("%s: %w", report.Path, err)
	}
	report.Digest = is.Digest
	if r, err := replica.ReadRecord(store); err == nil && r != nil { // else it is a finding
		report.Replica = &cli.CheckedReplica{Cluster: r.Cluster, Entry: r.Index}
	}
	for f, n := range is.Records {
		report.Records[f.String()] = n
	}
	for _, q := range is.Queues {
		report.Queues = append(report.Queues, cli.CheckedQueue{Name: q.Name, Messages: q.Messages, Leased: q.Leased, Delayed: q.Delayed, Retried: q.Retried})
	}
	return nil
}

func problemOf(d rocks.Damage) cli.Problem {
	what := d.What
	if d.Entries > 0 {
		what = fmt.Sprintf("%s (%d records)", what, d.Entries)
	}
	return cli.Problem{File: d.File, Family: d.Family, Key: hex.EncodeToString(d.First), Last: hex.EncodeToString(d.Last), What: what}
}

// repair replaces a damaged store by a consistent copy and keeps the damaged one:
//
//  1. copy the readable records to DIR-repairing, marked by a file
//  2. repair inconsistent records there
//  3. make it durable and verify it
//  4. exchange it with DIR
//  5. rename the damaged store, now DIR-repairing, to DIR-damaged-<time>, and remove the
//     mark
//
// It may be killed at any time and run again: it resumes from what it finds. On systems
// that cannot exchange two directories atomically, step 4 is two renames, between which DIR
// does not exist; the next run completes them.
func repair(dir string, progress cli.Progress) (cli.RepairReport, error) {
	swap := backup.NewSwap(filepath.Clean(dir), time.Now())
	report := cli.RepairReport{Path: swap.Dir}
	if err := swap.Resume(); err != nil {
		return report, err
	}
	i, err := inspect(swap.Dir)
	if err != nil {
		return report, err
	}
	defer i.Close()
	if err := swap.Discard(); err != nil { // the lock of the store excludes another repair
		return report, err
	}
	var damaged []rocks.Damage
	if report.Before, damaged, err = verifyStore(swap.Dir, i, progress); err != nil || report.Before.Count == 0 {
		return report, err
	}
	if err := rebuild(&report, i, swap, damaged, progress); err != nil {
		return report, errors.Join(fmt.Errorf("%s: %w", swap.Dir, err), swap.Discard())
	}
	if report.After, err = check(swap.Made, progress); err != nil {
		return report, err
	}
	report.After.Path = swap.Dir
	if report.After.Count > 0 {
		return report, fmt.Errorf("%s: the repaired copy in %s is not consistent: %s; nothing was changed", swap.Dir, swap.Made, report.After.Problems[0].What)
	}
	if err := swap.Do(); err != nil {
		return report, fmt.Errorf("%s: %w; run the repair again", swap.Dir, err)
	}
	report.Kept = swap.Kept
	return report, nil
}

// rebuild copies the readable records of a store and repairs the copy.
func rebuild(report *cli.RepairReport, i *rocks.Inspection, swap *backup.Swap, damaged []rocks.Damage, progress cli.Progress) error {
	if err := swap.Begin(); err != nil {
		return err
	}
	copied := progress("copying", total(report.Before.Records))
	store, done, err := i.Rebuild(swap.Made, damaged, func() { copied(1) })
	if err != nil {
		return err
	}
	report.Records, report.MayReturn = done.Records, done.MayReturn
	for _, n := range done.Notes {
		report.Note(n)
	}
	was, err := replica.Detach(store)
	if was {
		report.Note("the store was that of a node of a cluster; the copy is not: to come back, the node needs an empty store and an empty cluster.path")
	}
	if err == nil || errors.Is(err, storage.ErrCorrupt) { // a damaged position in the log is dropped like any other record
		err = verify.Repair(store, done.Whole[storage.Queues], func(what string) { report.Note(what) })
	}
	return errors.Join(err, store.Sync(), store.Close(), backup.SyncTree(swap.Made))
}

func total(records map[string]int64) int64 {
	n := int64(0)
	for _, count := range records {
		n += count
	}
	return n
}

// restore makes a data directory from a backup. It verifies the backup first, and renames
// the complete copy to the directory as the last step.
func restore(from, dir string, progress cli.Progress) (cli.CheckReport, error) {
	dir = filepath.Clean(dir)
	if err := mustBeEmpty(dir); err != nil {
		return cli.CheckReport{}, err
	}
	i, err := inspect(from)
	if errors.Is(err, rocks.ErrNoCgo) {
		return cli.CheckReport{}, err
	}
	if err != nil {
		return cli.CheckReport{}, fmt.Errorf("%w: it is not a backup that can be restored", err)
	}
	defer i.Close()
	report, _, err := verifyStore(from, i, progress)
	if err == nil && i.Torn != "" {
		err = fmt.Errorf("%s: %s; it is no backup", from, i.Torn)
	}
	if err != nil || report.Count > 0 {
		return report, err
	}
	made := dir + "-restoring"
	if err := os.RemoveAll(made); err != nil { // left by an interrupted restore
		return report, err
	}
	if err := restoreTo(made, from, report.Bytes, progress); err != nil {
		return report, errors.Join(fmt.Errorf("%s: %w", dir, err), os.RemoveAll(made))
	}
	return report, backup.Rename(made, dir)
}

func restoreTo(made, from string, bytes int64, progress cli.Progress) error {
	if err := backup.Copy(made, from, progress("copying, bytes", bytes)); err != nil {
		return err
	}
	store, err := rocks.Open(rocks.Options{Path: made})
	if err != nil {
		return err
	}
	err = engine.Restored(store, time.Now().Unix())
	// The store of a node becomes a plain one, which may begin a cluster of its own.
	_, detached := replica.Detach(store)
	return errors.Join(err, detached, store.Close(), backup.SyncTree(made))
}

func mustBeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(dir)); err != nil {
			return err
		}
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("to %s: it is not empty; choose a new directory, nothing is ever overwritten", dir)
	}
	return nil
}
