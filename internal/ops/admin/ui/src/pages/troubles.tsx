// What is wrong with queues: the broker finds it (FILA.FIGURES), here are the words for it.

import type { Bytes, Fields } from "../api";
import { count, duration, plural, short, spoken } from "../format";
import { to } from "../route";
import { Badge, Card, Table } from "../ui";
import type { Tone } from "../ui";
import { bytes, key, list, maybe, num, pairs, text } from "../value";

/** Trouble is something that is wrong with a queue. */
export interface Trouble {
	word: string;
	label: string;
	tone: Tone;
	why: string;
}

interface Words {
	label: string;
	tone: Tone;
	one: string; // of one queue: "1 queue …"
	many: string;
	why(q: Fields): string;
}

const reason = (q: Fields) => spoken(text(q.reason));

/** words has the troubles. A state that stops messages has its own reason. */
const words: Record<string, Words> = {
	script: { label: "script fails", tone: "bad", one: "has a script that fails", many: "have scripts that fail", why: () => "The breaker of a script is open: its safe decision is used." },
	no_consumer: { label: "no consumer", tone: "alone", one: "has no consumer", many: "have no consumer", why: reason },
	dead: { label: "dead", tone: "bad", one: "has dead letters", many: "have dead letters", why: () => "Dead messages wait to be redriven or removed." },
	full: { label: "nearly full", tone: "bad", one: "is nearly full", many: "are nearly full", why: () => "It has room for less than a tenth of the messages that it may hold; then enqueues are refused." },
	late: { label: "waits long", tone: "wait", one: "has messages that wait for more than 15 minutes", many: "have messages that wait for more than 15 minutes", why: (q) => `A message is ready for ${duration(maybe(q.oldest_ready_ms))}.${list(q.troubles).some((t) => wordsOf(text(t)).why === reason) ? "" : ` ${reason(q)}`}` },
	expiring: { label: "leases expire", tone: "wait", one: "has leases that expire", many: "have leases that expire", why: () => "Of the deliveries of the last ten minutes, one in twenty has expired: workers die, or need a longer visibility timeout." },
	paused: {
		label: "paused", tone: "quiet", one: "is paused", many: "are paused",
		why: (q) => {
			const sides = [num(q.paused_in) && "takes no messages", num(q.paused_out) && "hands none out"].filter(Boolean).join(" and ");
			return sides === "" ? reason(q) : `The queue is paused: it ${sides}.`;
		},
	},
	no_credit: { label: "no credit", tone: "wait", one: "waits for a budget", many: "wait for budgets", why: reason },
	held: { label: "held", tone: "wait", one: "is held", many: "are held", why: reason },
	throttled: { label: "throttled", tone: "wait", one: "is held up by the rate of a throttle", many: "are held up by the rates of throttles", why: reason },
	concurrency: { label: "concurrency", tone: "wait", one: "is held up by the leases that a throttle allows", many: "are held up by the leases that throttles allow", why: reason },
	ordered: { label: "ordered", tone: "wait", one: "waits for earlier messages of its keys", many: "wait for earlier messages of their keys", why: reason },
};

const wordsOf = (word: string): Words => words[word] ?? { label: word.replace("_", " "), tone: "wait", one: `has the trouble ${word}`, many: `have the trouble ${word}`, why: reason };

/** troubles says what is wrong with a queue, the most urgent first. */
export function troubles(q: Fields): Trouble[] {
	return list(q.troubles).map((t) => {
		const word = text(t);
		const w = wordsOf(word);
		return { word, label: word === "dead" ? `${short(num(q.dead_letters))} dead` : w.label, tone: w.tone, why: w.why(q) };
	});
}

/** Whys says what is wrong with a queue, beside its dead letters, each sentence once. */
export function Whys({ wrong }: { wrong: Trouble[] }) {
	const labels = new Map<string, string[]>();
	for (const t of wrong.filter((t) => t.word !== "dead")) {
		labels.set(t.why, [...(labels.get(t.why) ?? []), t.label]);
	}
	return <>{[...labels].map(([why, of]) => <p key={why} class="why-wrong"><strong>{of.join(", ")}:</strong> {why}</p>)}</>;
}

/** labelOf is the name of a trouble as a filter. */
export const labelOf = (word: string) => wordsOf(word).label;

/** deadPage is where the dead letters of a queue are shown. */
export function deadPage(q: Fields): string {
	return to(["queues", num(q.dead_letter) === 1 || q.dlq === null || q.dlq === undefined ? bytes(q.name) : bytes(q.dlq), "dead"]);
}

/** Attention lists what is wrong with all queues, the most urgent first. */
export function Attention({ groups }: { groups: Fields[] }) {
	const found = groups.filter((g) => text(g.trouble) !== "any");
	if (found.length === 0) {
		return null;
	}
	const any = num(groups.find((g) => text(g.trouble) === "any")?.queues);
	return (
		<Card title={`${plural(any, "queue needs", "queues need")} attention`}>
			<Table caption="What needs attention" rows={found} id={(g) => text(g.trouble)} columns={[
				{
					name: "What", head: true, wide: true, cell: (g) => {
						const w = wordsOf(text(g.trouble));
						const n = num(g.queues);
						return <span class="badges"><Badge tone={w.tone}>{w.label}</Badge><a href={to([], { show: text(g.trouble), sort: "-State" })}>{plural(n, "queue")} {n === 1 ? w.one : w.many}</a></span>;
					},
				},
				{ name: "Messages", right: true, cell: (g) => count(num(g.messages)) },
				{ name: "Oldest", hint: "How long the oldest ready message of these queues waits", right: true, cell: (g) => (text(g.trouble) === "dead" ? "–" : duration(maybe(g.oldest_ms))) },
				{ name: "First", broad: true, cell: (g) => <First queues={pairs(g.first)} more={num(g.queues)} all={to([], { show: text(g.trouble), sort: "-State" })} dead={text(g.trouble) === "dead"} /> },
			]} />
		</Card>
	);
}

function First({ queues, more, all, dead }: { queues: [Bytes, unknown][]; more: number; all: string; dead: boolean }) {
	return (
		<span class="firsts">
			{queues.slice(0, 3).map(([name]) => <a key={key(name)} href={to(["queues", name, ...(dead ? ["dead"] : [])])}>{text(name)}</a>)}
			{more > 3 && <a class="note" href={all}>and {count(more - 3)} more</a>}
		</span>
	);
}
