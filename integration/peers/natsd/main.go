// Natsd is a NATS server with JetStream and nothing else, so that bench-peers can start
// one without an installation: the server's own code, in a process of its own.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	port := flag.Int("port", 0, "`port` on 127.0.0.1")
	dir := flag.String("dir", "", "`directory` of the store")
	always := flag.Bool("sync-always", false, "sync before each acknowledgement, rather than every two minutes")
	name := flag.String("name", "", "`name` of a node of a cluster")
	cluster := flag.Int("cluster-port", 0, "`port` on 127.0.0.1 for the other nodes of its cluster; 0: it is alone")
	routes := flag.String("routes", "", "`addresses` of all nodes of its cluster, separated by commas")
	version := flag.Bool("version", false, "say which server this is, and end")
	flag.Parse()
	if *version {
		fmt.Println(server.VERSION)
		return
	}
	o := &server.Options{Host: "127.0.0.1", Port: *port, JetStream: true, StoreDir: *dir, SyncAlways: *always, NoSigs: true, NoLog: true}
	if *cluster != 0 {
		o.ServerName, o.Routes = *name, server.RoutesFromStr(*routes)
		o.Cluster = server.ClusterOpts{Name: "fila-peers", Host: "127.0.0.1", Port: *cluster}
	}
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "natsd: %v\n", err)
		os.Exit(1)
	}
}

func run(o *server.Options) error {
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("not ready on port %d", o.Port)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
