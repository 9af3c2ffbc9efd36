package resp

import "errors"

// ErrConfig is wrapped by what NewServer returns for an impossible setting.
var ErrConfig = errors.New("invalid server configuration")

// ErrServing is returned by Serve without a Listen before it, or after Shutdown.
var ErrServing = errors.New("the server is not listening")

// errMore tells that a command is not complete yet. It never leaves the reader.
var errMore = errors.New("more bytes needed")

// errHTTP is the end of a connection on which a web browser or a proxy was made
// to send commands: no answer is owed, and none may be given.
var errHTTP = errors.New("the first word is POST or Host:, possibly an attack through a web browser")

// errProgress ends a connection whose source returns neither bytes nor an error.
var errProgress = errors.New("the connection returns neither bytes nor an error")

// errInputMemory ends a connection whose command does not fit beside those that
// others are sending.
var errInputMemory = errors.New("too many long commands are being received at the same time: send it again, or raise server.input_bytes_max")

// protocolError is a frame that cannot be read on from. The texts are Redis'
// own wherever it has one, since client libraries match on them.
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
