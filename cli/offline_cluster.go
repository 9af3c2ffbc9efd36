package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// DetachReport is what `fila cluster detach` and `fila cluster recover` have done.
type DetachReport struct {
	Path     string `json:"path"`
	Cluster  string `json:"cluster"`  // id of the cluster that the store was a part of
	Node     string `json:"node"`     // id of the node
	Entry    uint64 `json:"entry"`    // newest entry of the replicated log that the store has
	Replayed uint64 `json:"replayed"` // entries that came from the node's log
	Kept     string `json:"kept"`     // where the log is now; empty: it is not kept
	New      string `json:"new"`      // id of the new cluster; empty: none
}

// offlineClusterCommands are the commands of `fila cluster` that no broker takes part in.
func offlineClusterCommands(p Program) []*cobra.Command {
	return []*cobra.Command{detachCommand(p), recoverCommand(p)}
}

func detachCommand(p Program) *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "detach DIR",
		Short: "Make the store of a node the store of a single broker",
		Long: `Takes the data directory of a node that does not run out of its cluster: what the node's
log has and the store has not is applied, and then a broker without cluster.node_id
serves it. Nothing is lost of what was acknowledged if the node was the last that led,
or if all nodes were stopped in order.

The log is kept as CLUSTERDIR-detached: remove it when you are sure. To come back to a
cluster, give this broker and two empty nodes the settings of one. It may be killed and
run again.`,
		Example: `  fila cluster detach ./data
  fila cluster detach /var/lib/fila --cluster-path /var/lib/fila-raft`,
		Args: arguments("DIR"),
	}
	cmd.Flags().StringVar(&path, "cluster-path", "", "`directory` of the replicated log; DIR-cluster")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := p.Detach(args[0], path)
		if err != nil {
			return fmt.Errorf("detach %w", err)
		}
		if r.Cluster == "" {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: it is the store of a single broker, nothing was changed\n", r.Path)
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: detached from the cluster %s with everything up to entry %d, %d of them from the log%s\n",
			r.Path, r.Cluster, r.Entry, r.Replayed, kept(r))
		return err
	}
	return cmd
}

func kept(r DetachReport) string {
	if r.Kept == "" {
		return ""
	}
	return "; the log is kept as " + r.Kept
}

func recoverCommand(p Program) *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "recover DIR",
		Short: "Make a new cluster of one node when the majority is lost for good",
		Long: `Makes a cluster of its own out of the data directory of a node that does not run. The
node serves as soon as it is started, alone, and other nodes of cluster.peers join it
once their disks are empty.

What the lost nodes have acknowledged and this one has not is lost. Run fila cluster
recover on the one node of those that are left whose entry is the greatest, and empty
storage.path and cluster.path of all others before they start: they belong to the old
cluster, and are refused.

The old log is kept as CLUSTERDIR-detached: remove it when you are sure. It may be killed
and run again.`,
		Example: `  fila cluster recover ./data
  fila cluster recover /var/lib/fila --cluster-path /var/lib/fila-raft`,
		Args: arguments("DIR"),
	}
	cmd.Flags().StringVar(&path, "cluster-path", "", "`directory` of the replicated log; DIR-cluster")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := p.Recover(args[0], path)
		if err != nil {
			return fmt.Errorf("recover %w", err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: node %s is the new cluster %s, with everything up to entry %d of %s, %d of them from the log; later entries are lost%s\n",
			r.Path, r.Node, r.New, r.Entry, r.Cluster, r.Replayed, kept(r))
		return err
	}
	return cmd
}
