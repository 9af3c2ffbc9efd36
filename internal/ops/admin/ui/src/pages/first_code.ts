// The programs of the first steps in each language: one creates a queue, one is a worker, one enqueues a
// message. A test runs all of them as the page shows them.

/** Address is where clients reach the broker; without a user they need not authenticate. */
export interface Address {
	user: string;
	host: string;
	port: string;
}

type Programs = [create: string, work: string, send: string];

/** languages are those that there are programs in, with how the names of their files end. */
export const languages: [name: string, ending: string][] = [["redis-cli", "sh"], ["Python", "py"], ["Node.js", "mjs"], ["Go", "go"], ["PHP", "php"], ["Ruby", "rb"]];

/** programs returns those of a language. What they name has no character that means something in a text of it. */
export function programs(language: string, at: Address, queue: string): Programs {
	const url = `redis://${at.user === "" ? "" : `${at.user}:PASSWORD@`}${at.host}:${at.port}`;
	switch (language) {
		case "Python":
			return python(url, queue);
		case "Node.js":
			return node(url, queue);
		case "Go":
			return go(url, queue);
		case "PHP":
			return php(at, queue);
		case "Ruby":
			return ruby(url, queue);
	}
	return shell(url, queue);
}

function shell(url: string, queue: string): Programs {
	const cli = `redis-cli -u ${url}`;
	return [
		`${cli} FILA.QUEUE CREATE ${queue} IFNOTEXISTS`,
		`while message=$(${cli} FILA.LEASE ${queue} BLOCK 5000); do
  [ -n "$message" ] || continue
  echo "$message" | sed -n 2p
  ${cli} FILA.ACK ${queue} "$(echo "$message" | head -n 1)"
done`,
		`${cli} FILA.ENQUEUE ${queue} hello`,
	];
}

function python(url: string, queue: string): Programs {
	const program = (body: string) => `import redis  # pip install redis

fila = redis.Redis.from_url("${url}", decode_responses=True, socket_timeout=10)
${body}`;
	return [
		program(`fila.execute_command("FILA.QUEUE", "CREATE", "${queue}", "IFNOTEXISTS")`),
		program(`while True:
    for receipt, payload, *_ in fila.execute_command("FILA.LEASE", "${queue}", "BLOCK", 5000):
        print(payload)
        fila.execute_command("FILA.ACK", "${queue}", receipt)`),
		program(`print(fila.execute_command("FILA.ENQUEUE", "${queue}", "hello"))`),
	];
}

function node(url: string, queue: string): Programs {
	const program = (body: string) => `import Redis from 'ioredis' // npm install ioredis

const fila = new Redis('${url}')
${body}`;
	return [
		program(`await fila.call('FILA.QUEUE', 'CREATE', '${queue}', 'IFNOTEXISTS')
fila.disconnect()`),
		program(`for (;;) {
  for (const [receipt, payload] of await fila.call('FILA.LEASE', '${queue}', 'BLOCK', 5000)) {
    console.log(payload)
    await fila.call('FILA.ACK', '${queue}', receipt)
  }
}`),
		program(`console.log(await fila.call('FILA.ENQUEUE', '${queue}', 'hello'))
fila.disconnect()`),
	];
}

function go(url: string, queue: string): Programs {
	const program = (imports: string[], body: string) => `package main

import (
${["context", ...imports].map((i) => `	"${i}"\n`).join("")}
	"github.com/redis/go-redis/v9" // go get github.com/redis/go-redis/v9
)

func main() {
	ctx := context.Background()
	options, err := redis.ParseURL("${url}")
	if err != nil {
		panic(err)
	}
${body}
}`;
	return [
		program([], `	err = redis.NewClient(options).Do(ctx, "FILA.QUEUE", "CREATE", "${queue}", "IFNOTEXISTS").Err()
	if err != nil {
		panic(err)
	}`),
		program(["fmt", "time"], `	options.ReadTimeout = 10 * time.Second // longer than BLOCK
	fila := redis.NewClient(options)
	for {
		messages, err := fila.Do(ctx, "FILA.LEASE", "${queue}", "BLOCK", 5000).Slice()
		if err != nil {
			panic(err)
		}
		for _, m := range messages {
			fields := m.([]any) // receipt, payload, headers, key, ...
			fmt.Println(fields[1])
			if err := fila.Do(ctx, "FILA.ACK", "${queue}", fields[0]).Err(); err != nil {
				panic(err)
			}
		}
	}`),
		program(["fmt"], `	fmt.Println(redis.NewClient(options).Do(ctx, "FILA.ENQUEUE", "${queue}", "hello").Text())`),
	];
}

function php(at: Address, queue: string): Programs {
	const program = (body: string) => `<?php // the extension redis
$fila = new Redis();
$fila->connect('${at.host}', ${at.port});
${at.user === "" ? "" : `$fila->auth(['${at.user}', 'PASSWORD']);\n`}${body}`;
	return [
		program(`var_dump($fila->rawCommand('FILA.QUEUE', 'CREATE', '${queue}', 'IFNOTEXISTS'));`),
		program(`while (true) {
    foreach ($fila->rawCommand('FILA.LEASE', '${queue}', 'BLOCK', '5000') as [$receipt, $payload]) {
        echo $payload, "\\n";
        $fila->rawCommand('FILA.ACK', '${queue}', $receipt);
    }
}`),
		program(`echo $fila->rawCommand('FILA.ENQUEUE', '${queue}', 'hello'), "\\n";`),
	];
}

function ruby(url: string, queue: string): Programs {
	const program = (body: string) => `require 'redis' # gem install redis

fila = Redis.new(url: '${url}', read_timeout: 10)
${body}`;
	return [
		program(`fila.call('FILA.QUEUE', 'CREATE', '${queue}', 'IFNOTEXISTS')`),
		program(`loop do
  fila.call('FILA.LEASE', '${queue}', 'BLOCK', '5000').each do |receipt, payload|
    puts payload
    fila.call('FILA.ACK', '${queue}', receipt)
  end
end`),
		program(`puts fila.call('FILA.ENQUEUE', '${queue}', 'hello')`),
	];
}
