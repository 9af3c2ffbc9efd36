package commands

import (
	"errors"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// wireCode maps an error of the engine to its code on the wire.
type wireCode struct {
	err  error
	code string
}

// wireCodes maps the errors of the engine to codes. A released code keeps its meaning. The first
// match applies.
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
		{engine.ErrBusy, "ERR"},
		{engine.ErrMaxDepth, "MAXDEPTH"},
		{engine.ErrPaused, "PAUSED"},
		{engine.ErrNoBudget, "NOBUDGET"},
		{engine.ErrCredit, "CREDIT"},
		{engine.ErrMisconf, "MISCONF"},
		{engine.ErrUnreadable, "MISCONF"},
		{engine.ErrBackupRunning, "ERR"},
		// Client libraries retry after LOADING, as when Redis restarts.
		{engine.ErrStopped, "LOADING"},
		{engine.ErrUnblocked, "UNBLOCKED"},
		{engine.ErrClientGone, "UNBLOCKED"},
	}
}

// wireError returns the code and the text of an error reply.
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

// writeError writes an error reply and returns its code.
func writeError(w *resp.Writer, err error) (code string) {
	code, text := wireError(err)
	w.Error(code, text)
	return code
}
