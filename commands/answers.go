package commands

import (
	"strconv"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

// The calls of this file are those of commands that ask the engine for one thing and write what it
// returned. A command with more of its own, such as work on the connection before the call, has a call
// type of its own.

// answered is a call whose result is kept from the loop to the connection: take runs on the loop, again
// if it has to wait; write runs on the connection.
type answered[T any] struct {
	take  func(tx *engine.Tx) (T, error)
	write func(w *resp.Writer, result T)

	result T
}

// Apply implements engine.Call.
func (c *answered[T]) Apply(tx *engine.Tx) (err error) {
	c.result, err = c.take(tx)
	return err
}

// Render writes the result.
func (c *answered[T]) Render(_ *Handler, w *resp.Writer) error {
	c.write(w, c.result)
	return nil
}

// answerOK answers OK, the success without a value.
func answerOK(do func(tx *engine.Tx) error) call { return okCall(do) }

type okCall func(tx *engine.Tx) error

// Apply implements engine.Call.
func (do okCall) Apply(tx *engine.Tx) error { return do(tx) }

// Render writes OK.
func (okCall) Render(_ *Handler, w *resp.Writer) error {
	w.OK()
	return nil
}

// answerInt answers a number.
func answerInt[N int | int64](take func(tx *engine.Tx) (N, error)) call {
	return &answered[N]{take: take, write: func(w *resp.Writer, n N) { w.Int(int64(n)) }}
}

// answerBool answers 1 or 0, such as whether something was removed.
func answerBool(take func(tx *engine.Tx) (bool, error)) call {
	return &answered[bool]{take: take, write: writeBool}
}

func writeBool(w *resp.Writer, yes bool) {
	if yes {
		w.Int(1)
		return
	}
	w.Int(0)
}

// answerMap answers a map with the fields of a value.
func answerMap[T any](take func(tx *engine.Tx) (T, error), show func(*T) *fields) call {
	return &answered[T]{take: take, write: func(w *resp.Writer, v T) { show(&v).write(w) }}
}

// answerMapOrNil answers a map with the fields of a value, or nil if there is none.
func answerMapOrNil[T any](take func(tx *engine.Tx) (T, bool), show func(*T) *fields) call {
	return answerOrNil(take, func(w *resp.Writer, v T) { show(&v).write(w) })
}

// answerOrNil answers a value, or nil if there is none.
func answerOrNil[T any](take func(tx *engine.Tx) (T, bool), write func(w *resp.Writer, v T)) call {
	found := false
	return &answered[T]{
		take: func(tx *engine.Tx) (v T, err error) {
			v, found = take(tx)
			return v, nil
		},
		write: func(w *resp.Writer, v T) {
			if !found {
				w.Null()
				return
			}
			write(w, v)
		},
	}
}

// answerMaps answers an array of maps with the fields of each value.
func answerMaps[T any](take func(tx *engine.Tx) ([]T, error), show func(*T) *fields) call {
	return &answered[[]T]{take: take, write: func(w *resp.Writer, list []T) {
		writeEach(w, len(list), func(i int) *fields { return show(&list[i]) })
	}}
}

// answerPage answers the next cursor, and an array of maps with the fields of each value.
func answerPage[T any](take func(tx *engine.Tx) (next uint64, list []T, err error), show func(*T) *fields) call {
	next := uint64(0)
	return &answered[[]T]{
		take: func(tx *engine.Tx) (list []T, err error) {
			next, list, err = take(tx)
			return list, err
		},
		write: func(w *resp.Writer, list []T) {
			w.Array(2)
			w.BulkString(strconv.FormatUint(next, 10))
			writeEach(w, len(list), func(i int) *fields { return show(&list[i]) })
		},
	}
}
