// A hand with a Go library: hand go-redis|rueidis|redigo|radix.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// forever is how long a call may take that blocks without an end.
const forever = -1

// A library sends a command whose reply is there within limit, and returns what
// an application gets. An error of the broker is a replyError.
type library interface {
	call(limit time.Duration, blocks bool, args []string) (any, error)
}

type replyError string

func (e replyError) Error() string { return string(e) }

func main() {
	libraries := map[string]struct {
		module string
		open   func(addr string, protocol int) (library, error)
	}{
		"go-redis": {"github.com/redis/go-redis/v9", newGoRedis},
		"rueidis":  {"github.com/redis/rueidis", newRueidis},
		"redigo":   {"github.com/gomodule/redigo", newRedigo},
		"radix":    {"github.com/mediocregopher/radix/v4", newRadix},
	}
	use := libraries[os.Args[1]]
	protocol, _ := strconv.Atoi(os.Getenv("FILA_RESP")) // 0 is the library's choice
	lib, err := use.open(os.Getenv("FILA_HOST")+":"+os.Getenv("FILA_PORT"), protocol)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(version(use.module))
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		limit := 5 * time.Second
		if ms, err := strconv.Atoi(words[0]); err == nil {
			limit += time.Duration(ms) * time.Millisecond
			if ms == 0 {
				limit = forever
			}
		}
		args := make([]string, 0, len(words))
		for _, w := range words[1:] {
			b, _ := hex.DecodeString(w[1:])
			args = append(args, string(b))
		}
		switch v, err := lib.call(limit, words[0] != "-", args); err := err.(type) {
		case nil:
			fmt.Println(show(v))
		case replyError:
			fmt.Println("-" + hex.EncodeToString([]byte(err)))
		default:
			fmt.Println("!" + hex.EncodeToString([]byte(err.Error())))
		}
	}
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module })
	return strings.TrimPrefix(info.Deps[i].Version, "v")
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "_"
	case int64:
		return ":" + strconv.FormatInt(v, 10)
	case []any:
		words := []string{"*" + strconv.Itoa(len(v))}
		for _, x := range v {
			words = append(words, show(x))
		}
		return strings.Join(words, " ")
	case map[any]any:
		words := []string{"%" + strconv.Itoa(len(v))}
		for k, x := range v {
			words = append(words, show(k), show(x))
		}
		return strings.Join(words, " ")
	case map[string]any:
		words := []string{"%" + strconv.Itoa(len(v))}
		for k, x := range v {
			words = append(words, show(k), show(x))
		}
		return strings.Join(words, " ")
	case []byte:
		return "$" + hex.EncodeToString(v)
	default:
		return "$" + hex.EncodeToString(fmt.Append(nil, v))
	}
}
