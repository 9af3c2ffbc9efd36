// Producer enqueues jobs for a tenant, with go-redis: producer KEY JOB...
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, key string, jobs []string) error {
	queue := cmp.Or(os.Getenv("FILA_QUEUE"), "jobs")
	fila := redis.NewClient(&redis.Options{
		Addr:       cmp.Or(os.Getenv("FILA_HOST"), "127.0.0.1") + ":" + cmp.Or(os.Getenv("FILA_PORT"), "5555"),
		MaxRetries: -1, // an enqueue that is sent again may be two messages
	})
	defer fila.Close()
	if err := fila.Do(ctx, "FILA.QUEUE", "CREATE", queue, "IFNOTEXISTS").Err(); err != nil {
		return err
	}
	for _, job := range jobs {
		id, err := fila.Do(ctx, "FILA.ENQUEUE", queue, job, "KEY", key, "HEADER", "from", "go").Text()
		if err != nil {
			return err
		}
		fmt.Println(id)
	}
	return nil
}
