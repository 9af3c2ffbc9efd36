package broker

import (
	"fmt"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/internal/ops/admin"
)

// File descriptors are divided at the start. If clients could take the last one, the store
// could not open its next file and would refuse all writes. So the order is: what is always
// open, the files of the store, the clients. If not everything fits, the store keeps fewer
// files open, down to storeFilesMin, and fewer clients are accepted.

const (
	// filesBeside is for everything but clients and tables: logs, manifest and directories
	// of the store, files that flushes, compactions and backups write, listeners,
	// connections that are being refused, profiles, certificates, the poller.
	filesBeside   = 64
	storeFilesMin = 64 // tables kept open; others are reopened for each read
	clientsMin    = 32
)

// shareDescriptors raises the limit of open files to its maximum and lowers
// cfg.Server.MaxClients to what fits. It returns how many files the store may keep open.
// The error says that the limit is below the minimum.
func shareDescriptors(cfg *cli.Config, log zerolog.Logger) (storeFiles int, err error) {
	wanted := storeFilesWanted(cfg.Storage)
	limit, known := raiseFileLimit()
	if !known {
		return wanted, nil
	}
	other := filesBeside
	if cfg.Admin.ListenAddr != "" {
		other += admin.ConnectionsMax
	}
	clients, storeFiles, err := share(limit, other, cfg.Server.MaxClients, wanted)
	if err != nil {
		return 0, err
	}
	if clients < cfg.Server.MaxClients {
		log.Warn().Int("maxclients", clients).Int("wanted", cfg.Server.MaxClients).Uint64("open_files", limit).Int("store_files", storeFiles).
			Msg("server.maxclients is lowered to what the limit of open files allows: raise it with ulimit -n, or LimitNOFILE of the service")
		cfg.Server.MaxClients = clients
	}
	return storeFiles, nil
}

// share divides limit descriptors, of which other are for other uses: it returns the
// numbers of clients and of store files, each at most what is wanted.
func share(limit uint64, other, clientsWanted, storeWanted int) (clients, store int, err error) {
	least := min(clientsWanted, clientsMin) + min(storeWanted, storeFilesMin) + other
	if limit < uint64(least) {
		return 0, 0, fmt.Errorf("this process may open %d files, it needs at least %d: raise the limit with ulimit -n, or LimitNOFILE of the service", limit, least)
	}
	rest := int(min(limit, 1<<30)) - other
	if rest >= clientsWanted+storeWanted {
		return clientsWanted, storeWanted, nil
	}
	store = min(storeWanted, max(rest/2, min(storeFilesMin, storeWanted)))
	clients = min(clientsWanted, rest-store)
	return clients, min(storeWanted, rest-clients), nil
}
