import { useEffect, useRef, useState } from "preact/hooks";
import { listen } from "../api";
import type { Fields, Refusal, StreamState } from "../api";
import { useTitle } from "../app";
import { exactTime } from "../format";
import { refine, to } from "../route";
import type { Route } from "../route";
import { Badge, Card, Choice, Code, Empty, Failure, Page, Search, Table } from "../ui";
import type { Tone } from "../ui";
import { bytes, fields, num, text } from "../value";
import { Connection } from "./overview";

const shownMax = 200;
const tones: Record<string, Tone> = { dead: "bad", failed: "wait", breaker: "bad", budget_low: "wait", budget_empty: "bad", lost: "bad", created: "good", altered: "quiet", deleted: "quiet", ready: "ready" };

const kinds: [string, string][] = [["trouble", "Trouble"], ["queues", "Queues"], ["all", "Everything"]];

/** patterns are the channels of each choice. There is an event for each message in "everything". */
const patterns: Record<string, string[]> = {
	trouble: ["failed", "dead", "breaker", "budget_low", "budget_empty", "lost"].map((k) => `fila:*:${k}`),
	queues: ["created", "altered", "deleted", "ready", "empty"].map((k) => `fila:*:${k}`),
	all: ["fila:*"],
};

interface Event {
	no: number;
	fields: Fields;
}

export function Events({ route }: { route: Route }) {
	useTitle("Events");
	const kind = route.query.get("kind") ?? "trouble";
	const match = route.query.get("match") ?? "";
	const [events, set] = useState<Event[]>([]);
	const [held, hold] = useState(false);
	const [state, say] = useState<StreamState>("waiting");
	const [why, explain] = useState<Refusal>();
	const [count, setCount] = useState(0);
	const waiting = useRef<Event[]>([]);
	const no = useRef(0);
	useEffect(() => {
		if (held) {
			return;
		}
		set([]);
		const query = (patterns[kind] ?? patterns.trouble ?? []).map((p) => `pattern=${encodeURIComponent(p)}`).join("&");
		const stream = listen(`v1/events?${query}`, {
			kinds: [""],
			event(data) {
				waiting.current.push({ no: no.current++, fields: fields(data) });
				if (waiting.current.length > shownMax) {
					waiting.current.splice(0, waiting.current.length - shownMax);
				}
			},
			state(s, refusal) {
				say(s);
				explain(refusal);
			},
		});
		// A picture four times a second, however many events there are.
		const timer = setInterval(() => {
			if (waiting.current.length > 0) {
				const fresh = waiting.current.splice(0).reverse();
				setCount(no.current);
				set((old) => [...fresh, ...old].slice(0, shownMax));
			}
		}, 250);
		return () => {
			clearInterval(timer);
			stream.close();
		};
	}, [kind, held]);
	const wanted = match.toLowerCase();
	const shown = events.filter((e) => wanted === "" || JSON.stringify(e.fields).toLowerCase().includes(wanted));
	return (
		<Page title="Events" sub={<><Connection state={held ? "hidden" : state} /> What happens, as it happens. Nothing is kept.</>}>
			<Card title={held ? "Paused" : `${count} so far`} actions={
				<>
					<Choice label="Kinds of events" value={kind} options={kinds} onChange={(v) => {
						set([]);
						refine(route, { kind: v === "trouble" ? "" : v });
					}} />
					<button type="button" aria-pressed={held} onClick={() => hold(!held)}>{held ? "Go on" : "Pause"}</button>
					<Search label="Filter by queue, key or text" shortcut value={match} onChange={(v) => refine(route, { match: v })} />
				</>
			}>
				<Failure error={why} />
				<Table caption="Events" rows={shown} id={(e) => String(e.no)} empty={<Empty title={events.length > 0 ? "None of these events matches." : "Nothing has happened yet."}>{events.length === 0 && kind === "trouble" && "Failures, dead letters, open breakers and empty budgets come here."}</Empty>} columns={[
					{ name: "At", head: true, cell: (e) => <span title={exactTime(num(e.fields.at))}>{exactTime(num(e.fields.at)).slice(11)}</span> },
					{ name: "Event", cell: (e) => <Badge tone={tones[text(e.fields.event)] ?? "quiet"}>{text(e.fields.event).replace("_", " ")}</Badge> },
					{ name: "Queue", cell: (e) => (e.fields.queue ? <a href={to(["queues", bytes(e.fields.queue)])}>{text(e.fields.queue)}</a> : text(e.fields.budget)) },
					{ name: "Key", cell: (e) => <span class="clip">{text(e.fields.key ?? (e.fields.key_base64 ? { base64: text(e.fields.key_base64) } : ""))}</span> },
					{ name: "Message", cell: (e) => (e.fields.id && e.fields.queue ? <a href={to(["queues", bytes(e.fields.event === "dead" && e.fields.dlq ? e.fields.dlq : e.fields.queue), "messages", text(e.fields.id)])}><Code>{text(e.fields.id)}</Code></a> : "") },
					{ name: "Details", wide: true, cell: (e) => details(e.fields) },
				]} />
				{events.length === shownMax && <p class="caption">The newest {shownMax} are shown.</p>}
			</Card>
		</Page>
	);
}

function details(f: Fields): string {
	return Object.entries(f)
		.filter(([name, v]) => !["event", "at", "queue", "id", "key", "key_base64"].includes(name) && v !== "" && v !== null)
		.map(([name, v]) => (name === "error" ? text(v) : `${name} ${text(v)}`))
		.join(", ");
}
