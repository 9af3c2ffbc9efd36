package sqs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fault is an error as clients of SQS see it.
type fault struct {
	kind    kind
	message string
}

func (f *fault) Error() string { return f.kind.name + ": " + f.message }

// kind is a kind of errors: its name in the JSON protocol, its code in the Query protocol, and its status.
type kind struct {
	name, code string
	status     int
}

// of returns an error of the kind.
func (k kind) of(format string, args ...any) *fault { return &fault{k, fmt.Sprintf(format, args...)} }

func named(name string) kind { return kind{name, name, http.StatusBadRequest} }

func coded(name, code string) kind { return kind{name, code, http.StatusBadRequest} }

// legacy is the prefix of codes that had one from the beginning.
const legacy = "AWS.SimpleQueueService."

//nolint:gochecknoglobals // a table of constants
var (
	queueDoesNotExist      = coded("QueueDoesNotExist", legacy+"NonExistentQueue")
	queueNameExists        = coded("QueueNameExists", "QueueAlreadyExists")
	receiptHandleIsInvalid = named("ReceiptHandleIsInvalid")
	messageNotInflight     = coded("MessageNotInflight", legacy+"MessageNotInflight")
	invalidMessageContents = named("InvalidMessageContents")
	unsupportedOperation   = coded("UnsupportedOperation", legacy+"UnsupportedOperation")
	emptyBatchRequest      = coded("EmptyBatchRequest", legacy+"EmptyBatchRequest")
	tooManyEntries         = coded("TooManyEntriesInBatchRequest", legacy+"TooManyEntriesInBatchRequest")
	batchIDsNotDistinct    = coded("BatchEntryIdsNotDistinct", legacy+"BatchEntryIdsNotDistinct")
	invalidBatchEntryID    = coded("InvalidBatchEntryId", legacy+"InvalidBatchEntryId")
	batchRequestTooLong    = coded("BatchRequestTooLong", legacy+"BatchRequestTooLong")
	invalidAttributeName   = named("InvalidAttributeName")
	invalidAttributeValue  = named("InvalidAttributeValue")
	overLimit              = named("OverLimit")
	resourceNotFound       = named("ResourceNotFoundException")
	missingParameter       = named("MissingParameter")
	invalidParameter       = named("InvalidParameterValue")
	invalidAction          = named("InvalidAction")
	malformed              = coded("SerializationException", "MalformedQueryString")
	requestTooLarge        = kind{"RequestTooLarge", "RequestTooLarge", http.StatusRequestEntityTooLarge}
	clientGone             = kind{"ClientGone", "ClientGone", http.StatusRequestTimeout}
	requestThrottled       = coded("RequestThrottled", "RequestThrottled")
	accessDenied           = kind{"AccessDeniedException", "AccessDenied", http.StatusForbidden}
	missingToken           = kind{"MissingAuthenticationToken", "MissingAuthenticationToken", http.StatusForbidden}
	invalidToken           = kind{"InvalidClientTokenId", "InvalidClientTokenId", http.StatusForbidden}
	signatureDoesNotMatch  = kind{"SignatureDoesNotMatch", "SignatureDoesNotMatch", http.StatusForbidden}
	incompleteSignature    = kind{"IncompleteSignature", "IncompleteSignature", http.StatusBadRequest}
	serviceUnavailable     = kind{"ServiceUnavailable", "ServiceUnavailable", http.StatusServiceUnavailable}
	internalFailure        = kind{"InternalFailure", "InternalFailure", http.StatusInternalServerError}
)

// refusals say what an error of the broker means to a client of SQS, by its code.
func refusals() map[string]kind {
	return map[string]kind{
		"NOQUEUE":     queueDoesNotExist,
		"QUEUEEXISTS": queueNameExists,
		"BADRECEIPT":  receiptHandleIsInvalid,
		"LEASELOST":   messageNotInflight,
		"NOPERM":      accessDenied,
		"NOAUTH":      accessDenied,
		"WRONGPASS":   accessDenied,
		"MAXDEPTH":    overLimit,
		"PAUSED":      requestThrottled,
		"INVALID":     invalidParameter,
		"TOOBIG":      invalidParameter,
		"ERR":         invalidParameter,
		"LUA":         invalidParameter,
	}
}

// faulty returns the error that clients see for an error of the broker. What may succeed when it is sent again is
// ServiceUnavailable: the libraries of AWS send it again.
func faulty(err error) *fault {
	if f, is := errors.AsType[*fault](err); is {
		return f
	}
	var refused redis.Error
	if !errors.As(err, &refused) {
		return serviceUnavailable.of("the broker cannot be reached, try again")
	}
	code, _, _ := strings.Cut(refused.Error(), " ")
	if k, is := refusals()[code]; is {
		return k.of("%s", refused.Error())
	}
	return serviceUnavailable.of("%s", refused.Error())
}

// refusedAs reports whether an error of the broker has a code.
func refusedAs(err error, code string) bool {
	var refused redis.Error
	return errors.As(err, &refused) && strings.HasPrefix(refused.Error(), code+" ")
}
