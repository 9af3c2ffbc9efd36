package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/client"
)

// failure is a refusal with its HTTP status. Its JSON is that of an error of the broker.
type failure struct {
	client.RefusalError

	status int
	retry  time.Duration // after which trying again makes sense; 0: not said
}

func failed(status int, code, text string) *failure {
	return &failure{client.RefusalError{Code: code, Text: text}, status, 0}
}

// busy refuses what there is no place for.
func busy(what string) *failure {
	f := failed(http.StatusServiceUnavailable, "BUSY", "too many "+what+" at once")
	f.retry = time.Second
	return f
}

// statuses are the HTTP statuses of the broker's error codes. The broker is well in all of
// 4xx.
func statuses() map[string]int {
	return map[string]int{
		"BADRECEIPT":  http.StatusBadRequest,
		"ERR":         http.StatusBadRequest,
		"EXECABORT":   http.StatusBadRequest,
		"INVALID":     http.StatusBadRequest,
		"NOPROTO":     http.StatusBadRequest,
		"NOAUTH":      http.StatusUnauthorized,
		"WRONGPASS":   http.StatusUnauthorized,
		"NOPERM":      http.StatusForbidden,
		"NOMSG":       http.StatusNotFound,
		"NOQUEUE":     http.StatusNotFound,
		"NOBUDGET":    http.StatusNotFound,
		"NOGROUP":     http.StatusNotFound,
		"CREDIT":      http.StatusPaymentRequired,
		"LEASELOST":   http.StatusConflict,
		"PAUSED":      http.StatusConflict,
		"SEALED":      http.StatusConflict,
		"CANCELLED":   http.StatusConflict,
		"QUEUEEXISTS": http.StatusConflict,
		"UNBLOCKED":   http.StatusConflict,
		"TOOBIG":      http.StatusRequestEntityTooLarge,
		"LUA":         http.StatusUnprocessableEntity,
		"MAXDEPTH":    http.StatusTooManyRequests,
		"LOADING":     http.StatusServiceUnavailable,
		"CLUSTERDOWN": http.StatusServiceUnavailable,
		"NOQUORUM":    http.StatusServiceUnavailable,
		"MOVED":       http.StatusMisdirectedRequest,
		"MISCONF":     http.StatusServiceUnavailable,
		"OOM":         http.StatusServiceUnavailable,
	}
}

// reason returns an error as a failure.
func reason(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if refusal, ok := errors.AsType[client.RefusalError](err); ok {
		status, known := statuses()[refusal.Code]
		if !known {
			status = http.StatusBadRequest
		}
		return &failure{refusal, status, 0}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return failed(http.StatusRequestEntityTooLarge, "TOOBIG", "the body is larger than "+strconv.Itoa(bodyBytesMax)+" bytes")
	}
	switch {
	case errors.Is(err, ErrUnavailable):
		return failed(http.StatusServiceUnavailable, "LOADING", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return failed(http.StatusGatewayTimeout, "TIMEOUT", "the command has not ended in time; it may have been executed")
	}
	return failed(http.StatusServiceUnavailable, "CLOSED", "the broker has ended the connection: "+err.Error())
}

// refuse answers with an error. A program without credentials is asked for them; the code of
// a page is not, as its browser would show a dialog of its own.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := reason(err)
	if f.status == http.StatusUnauthorized && r.Header.Get("Sec-Fetch-Mode") == "" {
		w.Header().Set("WWW-Authenticate", `Basic realm="Fila", charset="UTF-8"`)
	}
	if f.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((f.retry+time.Second-1)/time.Second)))
	}
	answer(w, f.status, client.AppendJSON(nil, f.RefusalError))
}

// fail answers with an error of the listener.
func fail(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, client.AppendJSON(nil, failed(status, code, text).RefusalError))
}

// answer answers with a JSON text.
func answer(w http.ResponseWriter, status int, text []byte) {
	if http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) != nil {
		return // the connection is gone
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error is the client's
}
