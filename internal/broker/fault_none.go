//go:build !fault

package broker

import "github.com/faisca/fila/resp"

// Without the tag fault, no binary contains the faults of fault.go.

func faultyStore(s store) store { return s }

func faultySession(s resp.Session) resp.Session { return s }
