package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// question says what a node asks another one:
//
//	question   kind 1 | length 4 | body
//	answer     0, or 1 for a refusal | length 4 | body, or the reason
type question byte

const (
	askTerm   question = 'T' // the term, see confirm.go
	askStatus question = 'S' // a Status, as JSON
	askJoin   question = 'J' // to become a member, see join.go
	askChange question = 'C' // what an operator wants of the leader, see change.go

	askDigest  question = 'D' // the digest of the store at an entry, see digest.go
	askVerdict question = 'V' // no question: the digest that the majority has
)

const (
	questionMax  = 64 << 10         // bytes of a body
	questionWait = 10 * time.Minute // for the next question of a connection
)

// answerQuestions answers the questions of a connection until it ends.
func answerQuestions(c net.Conn, from string, answer func(from string, q question, body []byte) ([]byte, error)) {
	var body []byte
	for c.SetReadDeadline(time.Now().Add(questionWait)) == nil {
		kind, b, err := readFrame(c, body)
		if err != nil {
			return
		}
		body = b
		status := byte(0)
		reply, err := answer(from, question(kind), b)
		if err != nil {
			status, reply = 1, []byte(err.Error())
		}
		if writeFrame(c, status, reply) != nil {
			return
		}
	}
}

// ask asks one question on a connection of its own.
func (p *Port) ask(ctx context.Context, addr string, q question, body []byte) ([]byte, error) {
	c, err := p.dial(ctx, kindQuestion, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return askOn(c, q, body, nil)
}

// askOn asks a question. The answer is in buf if it has room for it.
func askOn(c net.Conn, q question, body, buf []byte) ([]byte, error) {
	if err := writeFrame(c, byte(q), body); err != nil {
		return nil, err
	}
	status, answer, err := readFrame(c, buf)
	switch {
	case err != nil || status == 0:
		return answer, err
	case string(answer) == ErrNoLeader.Error():
		return nil, ErrNoLeader
	}
	return nil, refusedError(answer)
}

func writeFrame(w io.Writer, kind byte, body []byte) error {
	frame := append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body))), body...)
	_, err := w.Write(frame)
	return err
}

const frameHead = 1 + 4

// readFrame reads a frame into buf if it has room for it.
func readFrame(r io.Reader, buf []byte) (kind byte, body []byte, err error) {
	if cap(buf) < frameHead {
		buf = make([]byte, frameHead)
	}
	head := buf[:frameHead]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	kind = head[0]
	n := binary.BigEndian.Uint32(head[1:])
	if n > questionMax {
		return 0, nil, fmt.Errorf("a question or an answer of %d bytes, more than %d", n, questionMax)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	_, err = io.ReadFull(r, buf[:n])
	return kind, buf[:n], err
}
