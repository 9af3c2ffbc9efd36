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

// SQL returns the statements that make the table and the function, and bring those of an older version up to date. With
// notify, each statement that inserts rows wakes the relays; without, they look by themselves, see [Config].
func SQL(notify bool) string {
	if notify {
		return schema + "\n-- Wakes the relays.\nCREATE OR REPLACE TRIGGER fila_outbox_notify AFTER INSERT ON fila_outbox FOR EACH STATEMENT EXECUTE FUNCTION fila_outbox_notify();\n"
	}
	return schema + "\n-- Relays look for rows by themselves.\nDROP TRIGGER IF EXISTS fila_outbox_notify ON fila_outbox;\n"
}

// Setup applies [SQL] in one transaction. Several may run at once.
func Setup(ctx context.Context, db *pgx.Conn, notify bool) error {
	const lock = 0x66696c61 // one Setup at a time: CREATE ... IF NOT EXISTS is not atomic
	// Several statements, so without arguments, and in one implicit transaction.
	if _, err := db.PgConn().Exec(ctx, fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d); SET LOCAL client_min_messages = warning;\n%s\nCOMMIT", lock, SQL(notify))).ReadAll(); err != nil {
		return fmt.Errorf("the tables of the outbox cannot be made: %w", err)
	}
	return nil
}
