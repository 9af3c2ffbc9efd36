// The first steps: what a broker without queues shows, until its first message is acked.

import { useEffect, useState } from "preact/hooks";
import type { Fields } from "../api";
import { useApp, useReply } from "../app";
import { to } from "../route";
import { ActionButton, Badge, Card, Choice, Copy } from "../ui";
import { bytes, num, text } from "../value";
import { languages, programs } from "./first_code";
import { createQueue } from "./overview";
import { enqueue } from "./queue";

/** begun is how many messages were acked when the broker was met without queues; undefined: it was not. */
let begun: number | undefined;
let over = false; // since the page was loaded

/** useFirst says whether the first steps are shown, and ends them. */
export function useFirst() {
	const [, draw] = useState(0);
	return {
		shown(stats: Fields): boolean {
			if (!over && begun === undefined && num(stats.queues) === 0) {
				begun = num(stats.acked);
			}
			return !over && begun !== undefined;
		},
		acked: (stats: Fields) => begun !== undefined && num(stats.acked) > begun,
		end() {
			over = true;
			draw((n) => n + 1);
		},
	};
}

/** plain are the names that code can have in quotes of any language. */
const plain = /^[\w.:-]+$/;

/** address is where clients reach the broker, as far as this page can know it. */
function useAddress(): { user: string; host: string; port: string } {
	const app = useApp();
	const info = useReply(app.may({ command: "INFO" }) === "" ? ["INFO", "server"] : null);
	const port = /^tcp_port:([1-9]\d*)/m.exec(text(info.data))?.[1] ?? "5555";
	const user = app.session.session ? (plain.test(app.session.user) ? app.session.user : "USER") : "";
	return { user, host: location.hostname, port };
}

export function FirstSteps({ queues, acked, onEnd }: { queues: Fields[]; acked: boolean; onEnd(): void }) {
	const app = useApp();
	const [language, choose] = useState("redis-cli");
	const address = useAddress();
	useEffect(() => {
		if (acked) {
			app.say("The first message is acked.");
			onEnd();
		}
	}, [acked]);
	const made = queues.find((q) => num(q.dead_letter) === 0 && plain.test(text(q.name)));
	const name = made ? text(made.name) : "orders";
	const [create = "", work = "", send = ""] = programs(language, address, name);
	const ending = languages.find(([l]) => l === language)?.[1] ?? "";
	const steps = [
		{
			title: "Create a queue", file: "create", done: made !== undefined, program: create, action: made ? undefined : createQueue(undefined, name),
			text: made ? <>The queue <a href={to(["queues", bytes(made.name)])}>{name}</a> is there.</> : "A queue holds messages until a worker has done them.",
		},
		{
			title: "Run a worker", file: "worker", done: made !== undefined && num(made.waiters) + num(made.leased) + num(made.delivered) > 0, program: work,
			text: "It leases a message, does its work, and acks it. If it dies meanwhile, the message goes to another one.",
		},
		{
			title: "Enqueue a message", file: "enqueue", done: made !== undefined && num(made.enqueued) > 0, program: send, action: made && enqueue(bytes(made.name), { payload: "hello" }),
			text: "From your program, or from here. When the worker has acked it, this page goes on by itself.",
		},
	];
	const next = steps.findIndex((s) => !s.done);
	return (
		<Card title={made ? "The first message" : "There is no queue yet."} note="Three steps to the first message" actions={<button type="button" onClick={onEnd}>Skip</button>}>
			<Choice label="Language of the code" value={language} options={languages.map(([l]) => [l, l])} onChange={choose} />
			<ol class="steps">
				{steps.map((s, i) => (
					<li key={s.title}>
						<h3>{i + 1}. {s.title} {s.done ? <Badge tone="good">done</Badge> : i === next && <Badge tone="busy">next</Badge>}</h3>
						<p>{s.text}</p>
						<div class="command">
							<div class="bar"><span class="note">{s.file}.{ending}</span><Copy text={s.program} label={`Copy ${s.file}.${ending}`} /></div>
							<pre tabIndex={0} aria-label={`${s.file}.${ending}`}>{s.program}</pre>
						</div>
						{s.action && <div class="actions"><ActionButton primary={i === next} action={s.action} /></div>}
					</li>
				))}
			</ol>
		</Card>
	);
}
