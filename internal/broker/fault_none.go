//go:build !fault

package broker

import "github.com/faisca/fila/resp"

// The faults of fault.go are in no binary but those that are built to be found out.

func faultyStore(s store) store { return s }

func faultySession(s resp.Session) resp.Session { return s }
