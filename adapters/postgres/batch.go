package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// partsAtATime is how many of the 64 partitions a worker locks: eight workers, of any relays, work side by side.
	partsAtATime = 8
	// batchBytes bounds the payloads of a batch; the last one may be longer.
	batchBytes = 16 << 20
	// batchWithin bounds a batch, and so the time from an enqueue to the deletion of its row.
	batchWithin = 30 * time.Second
	// idleMost is when PostgreSQL ends the transaction of a relay that is silent, and frees its rows for others.
	idleMost = 2 * batchWithin
)

// row is a row of the table.
type row struct {
	id      pgtype.UUID
	queue   string
	key     string
	payload []byte
	options []string

	done    bool  // the broker has it, or has refused it for good
	refused error // why it has refused it
}

// errNull refuses a row for good, since FILA.ENQUEUE has no NULL.
var errNull = errors.New("NULL among the options: a throttle, a header or an option of the message is NULL")

// group is the queue with the key. Queues have no control characters in their names.
func (r *row) group() string { return r.queue + "\n" + r.key }

// command is what enqueues the row.
func (r *row) command() []any {
	args := make([]any, 0, 7+len(r.options))
	args = append(args, "FILA.ENQUEUE", r.queue, r.payload, "KEY", r.key, "DEDUP", r.id.String())
	for _, o := range r.options {
		args = append(args, o)
	}
	return args
}

// lockParts locks partitions that have rows, those with the oldest first.
const lockParts = `
SELECT p.part FROM fila_outbox_part p CROSS JOIN LATERAL (
	SELECT o.seq FROM fila_outbox o
	WHERE o.part = p.part AND o.failed_at IS NULL AND o.queue <> ALL ($2::text[]) AND o.queue || E'\n' || o.key <> ALL ($2::text[])
	ORDER BY o.seq LIMIT 1
) first ORDER BY first.seq LIMIT $1 FOR UPDATE OF p SKIP LOCKED`

// readRows locks the first rows of partitions and returns them up to a number of bytes.
const readRows = `
SELECT id, queue, key, payload, options FROM (
	SELECT r.*, sum(octet_length(r.payload)) OVER (ORDER BY r.seq) - octet_length(r.payload) AS before
	FROM unnest($1::smallint[]) AS p (part) CROSS JOIN LATERAL (
		SELECT o.seq, o.id, o.queue, o.key, o.payload, o.options FROM fila_outbox o
		WHERE o.part = p.part AND o.failed_at IS NULL AND o.queue <> ALL ($2::text[]) AND o.queue || E'\n' || o.key <> ALL ($2::text[])
		ORDER BY o.seq LIMIT $3 FOR UPDATE SKIP LOCKED
	) r
) s WHERE before < $4 ORDER BY seq`

const (
	deleteRows = `DELETE FROM fila_outbox WHERE id = ANY ($1::uuid[])`
	markRows   = `UPDATE fila_outbox o SET failed_at = clock_timestamp(), error = x.error FROM unnest($1::uuid[], $2::text[]) AS x (id, error) WHERE o.id = x.id`
)

// batch moves rows: see the comment of the package. It returns how many it has read, and whether there may be more.
func (r *Relay) batch(ctx context.Context) (read int, more bool, err error) {
	began := time.Now()
	tx, err := r.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after Commit it does nothing, and else the connection is lost
	rows, more, err := r.read(ctx, tx)
	if err != nil || len(rows) == 0 {
		return 0, false, err
	}
	r.at("read")
	r.settled.mark(rows)
	h := newHeld()
	asking, cancel := context.WithTimeout(ctx, batchWithin*2/3) // what is left is for the deletion
	failed := r.broker.enqueue(asking, rows, h)
	cancel()
	if failed != nil {
		h.codes[code(failed)]++
	}
	r.waits.update(h, rows, time.Now())
	r.metrics.refused(h)
	r.at("enqueued")
	if err := r.finish(ctx, tx, rows); err != nil {
		r.settled.add(rows)
		return len(rows), false, errors.Join(failed, err)
	}
	r.at("committed")
	r.settled.remove(rows)
	r.metrics.moved(rows, time.Since(began))
	r.tellRefused(rows)
	r.checkWindows(ctx, rows)
	return len(rows), more, failed
}

// read locks partitions and returns rows of theirs.
func (r *Relay) read(ctx context.Context, tx pgx.Tx) (rows []*row, more bool, err error) {
	waiting := r.waits.now(time.Now())
	if waiting == nil {
		waiting = []string{}
	}
	found, err := tx.Query(ctx, lockParts, partsAtATime, waiting)
	if err != nil {
		return nil, false, err
	}
	parts, err := pgx.CollectRows(found, pgx.RowTo[int16])
	if err != nil || len(parts) == 0 {
		return nil, false, err
	}
	r.at("locked")
	each := max(r.cfg.Batch/len(parts), 1)
	found, err = tx.Query(ctx, readRows, parts, waiting, each, batchBytes)
	if err != nil {
		return nil, false, err
	}
	rows, err = pgx.CollectRows(found, func(x pgx.CollectableRow) (*row, error) {
		var r row
		var options []pgtype.Text
		err := x.Scan(&r.id, &r.queue, &r.key, &r.payload, &options)
		for _, o := range options {
			if !o.Valid {
				r.done, r.refused = true, errNull
			}
			r.options = append(r.options, o.String)
		}
		return &r, err
	})
	return rows, len(rows) >= each || len(parts) == partsAtATime, err
}

// finish deletes and marks rows that are done, and commits.
func (r *Relay) finish(ctx context.Context, tx pgx.Tx, rows []*row) error {
	var gone, marked []pgtype.UUID
	var why []string
	for _, x := range rows {
		switch {
		case x.refused != nil:
			marked, why = append(marked, x.id), append(why, strings.ToValidUTF8(x.refused.Error(), "\uFFFD"))
		case x.done:
			gone = append(gone, x.id)
		}
	}
	if len(gone) > 0 {
		if _, err := tx.Exec(ctx, deleteRows, gone); err != nil {
			return err
		}
	}
	if len(marked) > 0 {
		if _, err := tx.Exec(ctx, markRows, marked, why); err != nil {
			return err
		}
	}
	r.at("deleted")
	return tx.Commit(ctx)
}

// tellRefused reports the rows that the broker has refused for good.
func (r *Relay) tellRefused(rows []*row) {
	const most = 10 // of a batch
	n := 0
	for _, x := range rows {
		if x.refused == nil {
			continue
		}
		if n++; n <= most {
			r.cfg.Log(fmt.Sprintf("row %s for queue %q is refused for good and marked: %v", x.id, x.queue, x.refused))
		}
	}
	if n > most {
		r.cfg.Log(fmt.Sprintf("%d more rows are refused for good and marked", n-most))
	}
}
