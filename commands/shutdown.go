package commands

import "github.com/faisca/fila/resp"

func shutdown() Spec {
	return Spec{
		Name: "SHUTDOWN", Group: "server", Since: "1.0.0", Complexity: "O(1)",
		Summary: "Stops the server: what was accepted is finished and stored first.",
		Differs: "There is nothing to save or not to save: what was acknowledged is stored already. " +
			"NOSAVE, SAVE, NOW and FORCE are accepted and change nothing.",
		Flags: []string{"admin", "noscript", "loading", "stale", "no_multi", "allow_busy"},
		Args: []Arg{
			{Name: "nosave_save", Type: OneOf, Optional: true, Args: []Arg{
				{Name: "nosave", Type: PureToken, Token: "NOSAVE"},
				{Name: "save", Type: PureToken, Token: "SAVE"},
			}},
			{Name: "now", Type: PureToken, Token: "NOW", Optional: true},
			{Name: "force", Type: PureToken, Token: "FORCE", Optional: true},
			{Name: "abort", Type: PureToken, Token: "ABORT", Optional: true},
		},
		Examples: []Example{{"SHUTDOWN ABORT", "(error) ERR No shutdown in progress."}},
		Local: func(s *Session, in *input, _ *resp.Writer) error {
			if in.has("abort") {
				if len(in.args) > 1 {
					return in.refuse(in.args[0], "")
				}
				return &refusal{"ERR", "No shutdown in progress."}
			}
			if s.handler.cfg.Shutdown == nil {
				return &refusal{"ERR", "Errors trying to SHUTDOWN. Check logs."}
			}
			s.closing = true // no reply: the end of the connection is the answer, as in Redis
			s.handler.cfg.Log.Info().Uint64("conn", s.conn.ID()).Msg("shutdown asked for by a client")
			s.handler.cfg.Shutdown()
			return nil
		},
	}
}
