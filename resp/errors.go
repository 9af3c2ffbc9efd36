package resp

import "errors"

// ErrConfig is wrapped by NewServer's errors for invalid settings.
var ErrConfig = errors.New("invalid server configuration")

// ListenError is returned by Listen for the address that cannot be listened on.
type ListenError struct {
	Listener Listener
	Err      error
}

// Error names the address.
func (e *ListenError) Error() string { return "listen on " + e.Listener.Addr + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// ErrServing is returned by Serve without a Listen before it, or after Shutdown.
var ErrServing = errors.New("the server is not listening")

// errMore means that a command is incomplete. It does not leave the reader.
var errMore = errors.New("more bytes needed")

// errHTTP ends a connection on which a browser or proxy was tricked into sending
// commands. It gets no reply.
var errHTTP = errors.New("the first word is POST or Host:, possibly an attack through a web browser")

// errProgress ends a connection whose source returns neither bytes nor an error.
var errProgress = errors.New("the connection returns neither bytes nor an error")

// errInputMemory ends a connection whose command does not fit into the memory for long
// commands.
var errInputMemory = errors.New("too many long commands are being received at the same time: send it again, or raise server.input_bytes_max")

// protocolError is a malformed frame after which reading cannot continue. The texts are
// those of Redis where it has one, because client libraries match them.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

const (
	errMultibulk        protocolError = "invalid multibulk length"
	errMultibulkTooLong protocolError = "too big mbulk count string"
	errMultibulkNoAuth  protocolError = "unauthenticated multibulk length"
	errBulk             protocolError = "invalid bulk length"
	errBulkTooLong      protocolError = "too big bulk count string"
	errBulkNoAuth       protocolError = "unauthenticated bulk length"
	errBulkEnd          protocolError = "expected CRLF behind the argument"
	errCommandTooBig    protocolError = "too big command"
	errInlineTooLong    protocolError = "too big inline request"
	errInlineQuotes     protocolError = "unbalanced quotes in request"
)
