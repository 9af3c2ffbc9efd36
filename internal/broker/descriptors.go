package broker

import (
	"fmt"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
)

// The descriptors that the process may open are shared out at the start, because they
// cannot be had later: a client that takes the last one would make the store fail, which
// then refuses all writes. The order is that of need: what is always open, the
// files of the store, the clients. Where not everything fits, the store keeps fewer files
// open at the same time, down to storeFilesMin, and fewer clients are let in.

const (
	// filesBeside is for all but clients and tables: the logs, the manifest and the
	// directories of the store, what flushes, compactions and backups write, listeners,
	// connections that are being refused, profiles, certificates, the poller.
	filesBeside   = 64
	storeFilesMin = 64 // tables that are open at the same time; others are opened anew
	clientsMin    = 32
)

// shareDescriptors raises the limit of open files as far as it may be raised, and lowers
// cfg's number of clients to what fits under it. It returns how many files the store may
// keep open.
func shareDescriptors(cfg *cli.Config, log zerolog.Logger) (storeFiles int, err error) {
	wanted := 0 // in memory
	if cfg.Storage.Engine != cli.EngineMemory {
		wanted = storeFilesWanted(cfg.Storage)
	}
	limit, known := raiseFileLimit()
	if !known {
		return wanted, nil
	}
	clients, storeFiles, err := share(limit, cfg.Server.MaxClients, wanted)
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

// share says how many clients and files of the store there can be with so many
// descriptors, at most as many as are wanted.
func share(limit uint64, clientsWanted, storeWanted int) (clients, store int, err error) {
	least := min(clientsWanted, clientsMin) + min(storeWanted, storeFilesMin) + filesBeside
	if limit < uint64(least) { //nolint:gosec // positive
		return 0, 0, fmt.Errorf("this process may open %d files, it needs at least %d: raise the limit with ulimit -n, or LimitNOFILE of the service", limit, least)
	}
	rest := int(min(limit, 1<<30)) - filesBeside
	if rest >= clientsWanted+storeWanted {
		return clientsWanted, storeWanted, nil
	}
	store = min(storeWanted, max(rest/2, min(storeFilesMin, storeWanted)))
	clients = min(clientsWanted, rest-store)
	return clients, min(storeWanted, rest-clients), nil
}
