package sqs

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	json "github.com/go-json-experiment/json/v1" // encoding/json of a later Go: it decodes in a third of the time
)

// protocol is how a request is decoded and a reply encoded.
type protocol interface {
	// action is the name of what is asked for.
	action() string
	// decode fills the struct of an action.
	decode(into any) error
	// reply writes the result of an action, nil if it has none.
	reply(r *fasthttp.RequestCtx, id string, result any)
	// fail writes an error.
	fail(r *fasthttp.RequestCtx, id string, f *fault)
}

// protocolOf returns the protocol of a request whose body has been read.
func protocolOf(r *fasthttp.RequestCtx, body []byte) (protocol, error) {
	if target := r.Request.Header.Peek("X-Amz-Target"); len(target) > 0 {
		return &jsonProtocol{target: string(target), body: body}, nil
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
	// What is no Unicode is refused: it would become U+FFFD, and so another text than was sent.
	if err := jsonv2.Unmarshal(p.body, into, json.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false)); err != nil {
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

func (p *jsonProtocol) reply(r *fasthttp.RequestCtx, id string, result any) {
	body := []byte("{}")
	if result != nil {
		var err error
		if body, err = json.Marshal(result); err != nil {
			p.fail(r, id, internalFailure.of("the reply cannot be encoded"))
			return
		}
	}
	p.write(r, id, http.StatusOK, body)
}

func (p *jsonProtocol) fail(r *fasthttp.RequestCtx, id string, f *fault) {
	body, err := json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + f.kind.name, "message": f.message})
	if err != nil {
		body = []byte("{}")
	}
	r.Response.Header.Set("X-Amzn-Query-Error", f.kind.code+";"+f.kind.side())
	p.write(r, id, f.kind.status, body)
}

func (p *jsonProtocol) write(r *fasthttp.RequestCtx, id string, status int, body []byte) {
	write(r, "application/x-amz-json-1.0", id, status, body)
}

// write writes a reply, which must not change after it.
func write(r *fasthttp.RequestCtx, kind, id string, status int, body []byte) {
	r.SetContentType(kind)
	r.Response.Header.Set("X-Amzn-Requestid", id)
	r.SetStatusCode(status)
	r.Response.SetBodyRaw(body)
}

// side is whose fault an error is.
func (k kind) side() string {
	if k.status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}
