package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/faisca/fila/internal/client"
)

// command executes one command, a JSON array of its words, and answers with its reply.
func (s *Server) command(w http.ResponseWriter, r *http.Request) {
	if !s.requests.take() {
		refuse(w, r, busy("requests"))
		return
	}
	defer s.requests.leave()
	reply, err := s.execute(w, r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, client.AppendJSON(nil, reply))
}

// queue answers with the figures of one queue: what scales workers often knows only how to fetch a number in JSON.
func (s *Server) queue(w http.ResponseWriter, r *http.Request) {
	if !s.requests.take() {
		refuse(w, r, busy("requests"))
		return
	}
	defer s.requests.leave()
	figures, err := s.figuresOf(r, r.PathValue("name"))
	if err != nil {
		refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, client.AppendJSON(nil, figures))
}

// figuresOf returns the map of a queue of FILA.FIGURES, which is a page with that queue alone. The age of the oldest
// ready message is 0 if none is ready: what scales workers takes numbers only.
func (s *Server) figuresOf(r *http.Request, queue string) (any, error) {
	c, err := s.open(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(r.Context(), commandTime)
	defer cancel()
	reply, err := c.Do(ctx, "FILA.FIGURES", "QUEUE", queue)
	if err != nil {
		return nil, err
	}
	page, ok := reply.([]any)
	if !ok || len(page) != 2 || len(client.Maps(page[1])) != 1 {
		return nil, fmt.Errorf("FILA.FIGURES QUEUE: %v instead of a page with one queue", reply)
	}
	m := client.Maps(page[1])[0]
	for i, f := range m {
		if f.Name == "oldest_ready_ms" && f.Value == nil {
			m[i].Value = int64(0)
		}
	}
	return m, nil
}

// execute returns the reply of the command in a request.
func (s *Server) execute(w http.ResponseWriter, r *http.Request) (any, error) {
	c, err := s.open(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	words, err := readWords(w, r)
	if err != nil {
		return nil, err
	}
	if why := needsConnection(words); why != "" {
		return nil, failed(http.StatusBadRequest, "ERR", strings.ToUpper(words[0])+" "+why)
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandTime)
	defer cancel()
	return c.Do(ctx, words...)
}

// readWords reads the words of a command.
func readWords(w http.ResponseWriter, r *http.Request) ([]string, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, failed(http.StatusUnsupportedMediaType, "ERR", "the Content-Type must be application/json")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, err
		}
		return nil, failed(http.StatusBadRequest, "ERR", "the body was not sent in full, or not in time")
	}
	if err := bodyRead(w); err != nil {
		return nil, err
	}
	words, err := parseWords(body)
	if err != nil {
		return nil, failed(http.StatusBadRequest, "ERR", err.Error())
	}
	return words, nil
}

var errNoWords = errors.New(`the body must be a JSON array of strings, as in ["FILA.QUEUE","PAUSE","orders"]; bytes that are not UTF-8 are {"base64": ...}`)

// parseWords parses a JSON array of words, each a string or an object with base64.
func parseWords(body []byte) ([]string, error) {
	if !utf8.Valid(body) {
		return nil, errNoWords
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil || len(raw) == 0 {
		return nil, errNoWords
	}
	words := make([]string, len(raw))
	for i, r := range raw {
		var err error
		if words[i], err = parseWord(r); err != nil {
			return nil, err
		}
	}
	return words, nil
}

func parseWord(raw json.RawMessage) (string, error) {
	if raw[0] == '{' {
		var word struct {
			Base64 *string `json:"base64"`
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if d.Decode(&word) != nil || word.Base64 == nil {
			return "", errNoWords
		}
		b, err := base64.StdEncoding.DecodeString(*word.Base64)
		if err != nil {
			return "", errNoWords
		}
		return string(b), nil
	}
	var word string
	if raw[0] != '"' || json.Unmarshal(raw, &word) != nil {
		return "", errNoWords
	}
	// Half of a surrogate pair is no character: encoding/json would replace it in silence.
	if strings.ContainsRune(word, utf8.RuneError) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`)) && !bytes.ContainsRune(raw, utf8.RuneError) {
		return "", errNoWords
	}
	return word, nil
}

// needsConnection says why a command is refused that makes sense only on a connection that
// outlasts it, or that has more than one reply or none; "" for any other. Whether the user
// may run it is the broker's business.
func needsConnection(words []string) string {
	const (
		user   = "is not for HTTP: the user of a request is that of its session, certificate or Basic authentication"
		lasts  = "is not for HTTP: each request has a connection of its own, which ends with it"
		stream = "is not for HTTP: events are at /v1/events"
		waits  = "with BLOCK is not for HTTP: use it without, or a connection"
	)
	switch strings.ToUpper(words[0]) {
	case "AUTH", "HELLO", "RESET":
		return user
	case "MULTI", "EXEC", "DISCARD", "QUIT":
		return lasts
	case "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "MONITOR":
		return stream
	case "CLIENT":
		if len(words) > 1 && strings.EqualFold(words[1], "REPLY") {
			return lasts
		}
	case "FILA.LEASE", "FILA.MLEASE":
		for _, word := range words[1:] {
			if strings.EqualFold(word, "BLOCK") {
				return waits
			}
		}
	}
	return ""
}
