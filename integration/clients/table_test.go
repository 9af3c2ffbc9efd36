package clients_test

import (
	"path/filepath"
	"testing"
)

// client is a library under test.
type client struct {
	name, language string

	// The command that starts its hand, and the one that builds it, if needed. Instead of a
	// program, open may create a hand and return the version.
	command   []string
	make      []string
	open      func(t *testing.T, addr string, protocol int) (hand, string)
	benchmark bool // redis-benchmark, which has no hand

	// A command that succeeds if runtime and library are installed, and how to install them.
	has     []string
	install string

	// The default protocol, and another that can be configured, or 0.
	protocol, other int

	// How it presents errors of the broker: the prefix of the code, in which COMMAND stands for the
	// command; the suffix of the code, if not a space; and whether it drops the code ERR.
	errorPrefix, errorMark string
	dropsERR               bool
	losesErrors            bool // a call may return nil if its connection breaks
}

// The sources of the libraries.
const (
	npm    = "npm ci in integration/clients/javascript"
	debian = "apt-get install "
)

// clients returns the libraries, by language.
func clients() []client {
	node := func(name, pkg string, protocol, other int) client {
		return client{
			name: name, language: "JavaScript", command: []string{"node", "javascript/hand.mjs", pkg},
			has: []string{"node", "javascript/suits.cjs", pkg}, install: "nodejs and npm, then " + npm,
			protocol: protocol, other: other,
		}
	}
	golang := func(name string, protocol, other int, dropsERR bool) client {
		return client{
			name: name, language: "Go", command: []string{made("hand-go"), name}, has: []string{"go", "version"}, install: "Go",
			make:     []string{"go", "build", "-C", "go", "-modfile=go.mod", "-o", filepath.Join("..", made("hand-go")), "."},
			protocol: protocol, other: other, dropsERR: dropsERR,
		}
	}
	python := func(name, module string, args ...string) client {
		const interpreter = "/usr/bin/python3" // Debian's interpreter, which has Debian's libraries
		return client{
			name: name, language: "Python", command: append([]string{interpreter, "python/hand.py"}, args...),
			has: []string{interpreter, "-c", "import " + module}, install: debian + "python3-redis, 4.2 or newer for asyncio",
			protocol: 2, dropsERR: true,
		}
	}
	php := func(name, pkg, check string) client {
		return client{
			name: name, language: "PHP", command: []string{"php", "php/hand.php", name},
			has: []string{"php", "-r", check}, install: debian + "php-cli " + pkg, protocol: 2,
		}
	}
	perl := func(name, pkg string) client {
		return client{
			name: name, language: "Perl", command: []string{"perl", "perl/hand.pl", name},
			has: []string{"perl", "-M" + name, "-e", "1"}, install: debian + pkg, protocol: 2, errorPrefix: "[COMMAND] ",
		}
	}
	fast := perl("Redis::Fast", "libredis-fast-perl")
	fast.losesErrors = true
	glide := node("valkey-glide", "@valkey/valkey-glide", 3, 2)
	glide.errorMark, glide.dropsERR = ": ", true
	return []client{
		{
			name: "redis-cli", language: "shell", open: openRedisCLI,
			has: []string{"redis-cli", "--quoted-json", "--version"}, install: debian + "redis-tools, 7.0 or newer", protocol: 2, other: 3,
		},
		{
			name: "redis-benchmark", language: "shell", benchmark: true,
			has: []string{"redis-benchmark", "-3", "--version"}, install: debian + "redis-tools, 7.0 or newer",
		},
		{
			name: "hiredis", language: "C", command: []string{made("hand-c")},
			make: []string{"cc", "-Wall", "-Wextra", "-Werror", "-o", made("hand-c"), filepath.Join("c", "hand.c"), "-lhiredis"},
			has:  []string{"pkg-config", "--exists", "hiredis"}, install: debian + "libhiredis-dev pkg-config", protocol: 2,
		},
		golang("go-redis", 3, 2, false),
		golang("rueidis", 3, 2, true),
		golang("redigo", 2, 0, false),
		golang("radix", 2, 0, false),
		node("ioredis", "ioredis", 3, 2),
		node("ioredis 5", "ioredis-5", 2, 0),
		node("iovalkey", "iovalkey", 2, 0),
		node("node-redis", "redis", 3, 2),
		node("node-redis 5", "redis-5", 2, 3),
		node("node-redis 4", "redis-4", 2, 0),
		glide,
		python("redis-py", "redis"),
		python("redis-py, asyncio", "redis.asyncio", "asyncio"),
		{
			name: "redis-rb", language: "Ruby", command: []string{"ruby", "ruby/hand.rb"},
			has: []string{"ruby", "-e", "require 'redis'"}, install: debian + "ruby ruby-redis", protocol: 2,
		},
		php("phpredis", "php-redis", "exit(extension_loaded('redis') ? 0 : 1);"),
		php("predis", "php-predis", "require 'Predis/autoload.php';"),
		perl("Redis", "libredis-perl"),
		fast,
		{
			name: "redis-lua", language: "Lua", command: []string{"lua5.1", "lua/hand.lua"},
			has: []string{"lua5.1", "-e", "require 'redis'"}, install: debian + "lua5.1 lua-redis", protocol: 2,
		},
		{
			name: "eredis", language: "Erlang", command: []string{"escript", "erlang/hand.escript"},
			has:     []string{"erl", "-noshell", "-eval", "case code:which(eredis) of non_existing -> halt(1); _ -> halt(0) end."},
			install: debian + "erlang-base erlang-redis-client", protocol: 2,
		},
	}
}

// made returns the directory of a build artefact.
func made(name string) string { return filepath.Join("..", "..", ".cache", "test", name) }
