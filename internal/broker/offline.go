//go:build cgo

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
	"github.com/faisca/fila/internal/backup"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// check verifies a store: first that files are what was written, then that records are
// what the engine writes.
func check(dir string, progress cli.Progress) (cli.CheckReport, error) {
	i, err := rocks.Inspect(dir)
	if err != nil {
		return cli.CheckReport{}, err
	}
	defer i.Close()
	report, _, err := verify(dir, i, progress)
	return report, err
}

// verify also returns the damaged tables.
func verify(dir string, i *rocks.Inspection, progress cli.Progress) (cli.CheckReport, []rocks.Damage, error) {
	report := cli.CheckReport{Path: dir, Files: len(i.Tables), Records: map[string]int64{}, Queues: []cli.CheckedQueue{}, Problems: []cli.Problem{}}
	for _, t := range i.Tables {
		report.Bytes += t.Bytes
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
	if i.Store == nil {
		return report, damaged, nil
	}
	err := verifyRecords(&report, i.Store, progress("records of "+dir, records))
	return report, damaged, err
}

// verifyRecords holds the records to what the engine writes.
func verifyRecords(report *cli.CheckReport, store engine.VerifyStore, read func(int64)) error {
	is, err := engine.Verify(store, func(f engine.Finding) {
		report.Add(cli.Problem{Family: f.Family.String(), Key: hex.EncodeToString(f.Key), What: f.What})
	}, func() { read(1) })
	if err != nil {
		return fmt.Errorf("%s: %w", report.Path, err)
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

// repair puts a sound store in the place of a damaged one, which it keeps:
//
//  1. what can be read is copied to DIR-repairing, in which a file says that this is it
//  2. records that contradict each other are put in order there
//  3. it is made durable, and verified
//  4. it and DIR change places
//  5. the damaged one, now DIR-repairing, becomes DIR-damaged-<time>, and the file goes
//
// It may be killed at any time and be run again: it begins with what was left. Where two
// directories cannot change places at once, 4 is two steps, between which there is no
// DIR; then the next run does the second.
func repair(dir string, progress cli.Progress) (cli.RepairReport, error) {
	swap := backup.NewSwap(filepath.Clean(dir), time.Now())
	report := cli.RepairReport{Path: swap.Dir}
	if err := swap.Resume(); err != nil {
		return report, err
	}
	i, err := rocks.Inspect(swap.Dir)
	if err != nil {
		return report, err
	}
	defer i.Close()
	if err := swap.Discard(); err != nil { // no other repair can run: the store is locked
		return report, err
	}
	var damaged []rocks.Damage
	if report.Before, damaged, err = verify(swap.Dir, i, progress); err != nil || report.Before.Count == 0 {
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
		return report, fmt.Errorf("%s: what was saved is in %s, and not in order: %s; nothing was changed", swap.Dir, swap.Made, report.After.Problems[0].What)
	}
	if err := swap.Do(); err != nil {
		return report, fmt.Errorf("%s: %w; run the repair again", swap.Dir, err)
	}
	report.Kept = swap.Kept
	return report, nil
}

// rebuild copies a store and puts the copy in order.
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
	err = engine.Repair(store, done.Whole[storage.Queues], func(what string) { report.Note(what) })
	return errors.Join(err, store.Sync(), store.Close(), backup.SyncTree(swap.Made))
}

func total(records map[string]int64) int64 {
	n := int64(0)
	for _, count := range records {
		n += count
	}
	return n
}

// restore makes a data directory of a backup, which is verified before and whole when
// the directory has its name.
func restore(from, dir string, progress cli.Progress) (cli.CheckReport, error) {
	dir = filepath.Clean(dir)
	if err := mustBeEmpty(dir); err != nil {
		return cli.CheckReport{}, err
	}
	i, err := rocks.Inspect(from)
	if err != nil {
		return cli.CheckReport{}, fmt.Errorf("%w: it is no backup that can be restored", err)
	}
	defer i.Close()
	report, _, err := verify(from, i, progress)
	if err != nil || report.Count > 0 {
		return report, err
	}
	made := dir + "-restoring"
	if err := os.RemoveAll(made); err != nil { // of a restore that was cut short
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
	return errors.Join(err, store.Close(), backup.SyncTree(made))
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
