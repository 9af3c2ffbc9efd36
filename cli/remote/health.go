package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faisca/fila/internal/client"
)

// healthCommand is `fila health`: the check of containers and load balancers, over the
// port that clients use.
func healthCommand(env *Env) *cobra.Command {
	var ready bool
	timeout := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check that a broker is alive, or ready for clients",
		Long: `Asks a broker how it is, and exits with 0 if it is well and with 1 if not.

Alive is a broker that executes commands. With --ready it must also take writes: it
has recovered its queues, its disk is neither full nor failing, and it is not
stopping. Restart a broker that is not alive; send no clients to one that is not
ready.

It runs INFO. A broker that refuses that because it wants a password counts as
alive; whether it is ready is known only to users with the right to INFO.`,
		Example: `  fila health
  fila health --ready --url fila://monitor@10.0.0.7:5555`,
		Args: none,
	}
	c := Connecting(cmd, env)
	c.NamedKey(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "also check that the broker takes writes")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "`duration` after which a broker that has not answered is not alive")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return UsageError{fmt.Errorf("--timeout must be positive, not %s", timeout)}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		state, err := c.health(ctx, ready)
		if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			return fmt.Errorf("the broker has not answered within %s", timeout)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), state)
		return nil
	}
	return cmd
}

// health says how the broker is. Its error says why it is not alive, or with ready not
// ready.
func (c *Connection) health(ctx context.Context, ready bool) (string, error) {
	conn, err := c.Dial(ctx)
	var reply any
	if err == nil {
		defer conn.Close()
		reply, err = conn.Do(ctx, "INFO", "persistence", "replication", "fila")
	}
	// Only a broker that executes commands refuses with one of these.
	if !ready && client.Refused(err, "NOAUTH", "NOPERM", "WRONGPASS", "LOADING") {
		return "alive", nil
	}
	if err != nil {
		return "", err
	}
	if !ready {
		return "alive", nil
	}
	figures, _ := reply.(string)
	switch {
	case field(figures, "loading") != "0":
		return "", errors.New("the broker is not ready: it is recovering its queues")
	case field(figures, "writable") != "1" && field(figures, "master_link_status") == "down":
		return "", errors.New("the broker is not ready: no node of the cluster leads, see fila cluster status")
	case field(figures, "writable") != "1":
		return "", errors.New("the broker is not ready: it takes no writes, its log says why")
	}
	return "ready", nil
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// field is the value of a field of INFO, "" if it is not there.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), name+":"); ok {
			return value
		}
	}
	return ""
}
