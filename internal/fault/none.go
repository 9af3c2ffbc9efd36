//go:build !fault

package fault

import "github.com/faisca/fila/resp"

// WrapStore returns s.
func WrapStore(s Store) Store { return s }

// WrapSession returns s.
func WrapSession(s resp.Session) resp.Session { return s }
