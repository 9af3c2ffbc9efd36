package commands

import (
	"errors"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// wireCode is a refusal of the engine and its code on the wire.
type wireCode struct {
	err  error
	code string
}

// wireCodes is the one place where the engine's refusals become codes. A code,
// once released, keeps its meaning. The first that fits counts.
func wireCodes() []wireCode {
	return []wireCode{
		{engine.ErrNoQueue, "NOQUEUE"},
		{engine.ErrQueueExists, "QUEUEEXISTS"},
		{engine.ErrQueueNotEmpty, "INVALID"},
		{engine.ErrNoMessage, "NOMSG"},
		{engine.ErrLeaseLost, "LEASELOST"},
		{engine.ErrBadReceipt, "BADRECEIPT"},
		{engine.ErrInvalid, "INVALID"},
		{engine.ErrTooBig, "TOOBIG"},
		{engine.ErrScript, "LUA"},
		{engine.ErrMaxDepth, "MAXDEPTH"},
		{engine.ErrPaused, "PAUSED"},
		{engine.ErrMisconf, "MISCONF"},
		{engine.ErrUnreadable, "MISCONF"},
		{engine.ErrBackupRunning, "ERR"},
		// Retried by clients when the broker is back, as when Redis restarts.
		{engine.ErrStopped, "LOADING"},
		{engine.ErrUnblocked, "UNBLOCKED"},
		{engine.ErrClientGone, "UNBLOCKED"},
	}
}

// wireError returns the code and the text with which an error is answered.
func wireError(err error) (code, text string) {
	if r, isRefusal := errors.AsType[*command.Error](err); isRefusal {
		return r.Code, r.Text
	}
	for _, c := range wireCodes() {
		if errors.Is(err, c.err) {
			return c.code, err.Error()
		}
	}
	return "ERR", err.Error()
}

// writeError answers with the error and returns its code.
func writeError(w *resp.Writer, err error) (code string) {
	code, text := wireError(err)
	w.Error(code, text)
	return code
}
