package sqs

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	json "github.com/go-json-experiment/json/v1" // encoding/json of a later Go: it decodes in a third of the time
)

// protocol is how a request is decoded and a reply encoded.
type protocol interface {
	// action is the name of what is asked for.
	action() string
	// decode fills the struct of an action.
	decode(into any) error
	// reply writes the result of an action, nil if it has none.
	reply(w http.ResponseWriter, id string, result any)
	// fail writes an error.
	fail(w http.ResponseWriter, id string, f *fault)
}

// protocolOf returns the protocol of a request whose body has been read.
func protocolOf(r *http.Request, body []byte) (protocol, error) {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return &jsonProtocol{target: target, body: body}, nil
	}
	return newQueryProtocol(r, body)
}

// jsonProtocol is AWS JSON 1.0: the name of the action in a header, its parameters an object.
type jsonProtocol struct {
	target string
	body   []byte
}

func (p *jsonProtocol) action() string {
	name, _ := strings.CutPrefix(p.target, "AmazonSQS.")
	return name
}

func (p *jsonProtocol) decode(into any) error {
	if len(bytes.TrimSpace(p.body)) == 0 {
		return nil
	}
	if err := json.Unmarshal(p.body, into); err != nil {
		return malformed.of("the body is not valid: %v", plain(err))
	}
	return nil
}

// plain returns an error of encoding/json without the names of this package's types.
func plain(err error) string {
	if typed, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return "field " + typed.Field + " cannot be a " + typed.Value
	}
	return err.Error()
}

func (p *jsonProtocol) reply(w http.ResponseWriter, id string, result any) {
	body := []byte("{}")
	if result != nil {
		var err error
		if body, err = json.Marshal(result); err != nil {
			p.fail(w, id, internalFailure.of("the reply cannot be encoded"))
			return
		}
	}
	p.write(w, id, http.StatusOK, body)
}

func (p *jsonProtocol) fail(w http.ResponseWriter, id string, f *fault) {
	body, err := json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + f.kind.name, "message": f.message})
	if err != nil {
		body = []byte("{}")
	}
	w.Header().Set("X-Amzn-Query-Error", f.kind.code+";"+f.kind.side())
	p.write(w, id, f.kind.status, body)
}

func (p *jsonProtocol) write(w http.ResponseWriter, id string, status int, body []byte) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // a longer reply would come in chunks
	w.Header().Set("X-Amzn-Requestid", id)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// side is whose fault an error is.
func (k kind) side() string {
	if k.status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}
