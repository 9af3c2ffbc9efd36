// Fila is a message broker that speaks the Redis protocol.
package main

import (
	"os"

	"github.com/faisca/fila/internal/broker"
)

func main() { os.Exit(broker.Main()) }
