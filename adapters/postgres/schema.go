package outbox

import (
	"context"
	_ "embed" // for schema.sql
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

// channel is what relays listen on.
const channel = "fila_outbox"

// SQL returns the statements that make the table and the function, and bring those of an older version up to date.
func SQL() string { return schema }

// Setup applies [SQL] in one transaction. Several may run at once.
func Setup(ctx context.Context, db *pgx.Conn) error {
	const lock = 0x66696c61 // one Setup at a time: CREATE ... IF NOT EXISTS is not atomic
	// Several statements, so without arguments, and in one implicit transaction.
	if _, err := db.PgConn().Exec(ctx, fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d); SET LOCAL client_min_messages = warning;\n%s\nCOMMIT", lock, schema)).ReadAll(); err != nil {
		return fmt.Errorf("the tables of the outbox cannot be made: %w", err)
	}
	return nil
}
