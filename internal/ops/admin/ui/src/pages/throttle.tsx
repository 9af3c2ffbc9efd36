// A throttle: its limits, what it does at the moment, and which keys wait for it.

import { useEffect, useState } from "preact/hooks";
import { run } from "../api";
import type { Bytes, Fields } from "../api";
import { useReply, useTitle } from "../app";
import { Charts } from "../chart";
import { count, duration, figure } from "../format";
import { levels, rates, record, recorded } from "../history";
import { to } from "../route";
import type { Route } from "../route";
import { Actions, Card, Empty, Facts, Failure, Loading, Page, Table } from "../ui";
import { bytes, key, list, maybe, num, page, same, text } from "../value";
import { Why } from "./keys";
import { pastRates, Ranges, rangeOf, usePast } from "./past";
import { Leases, Next, throttleActions } from "./throttles";

const queuesMost = 5; // whose keys are looked at
const keysMost = 100; // of each, those that wait longest

/** Waiting is a key that waits for a throttle. */
interface Waiting {
	queue: Bytes;
	k: Fields;
}

/** waitingFor looks for keys that wait for a throttle, in the queues that throttles hold up. */
async function waitingFor(name: Bytes): Promise<Waiting[]> {
	const found: Waiting[] = [];
	const queues = new Map<string, Bytes>();
	for (const trouble of ["throttled", "concurrency", "held"]) {
		for (const q of page(await run(["FILA.FIGURES", "TROUBLE", trouble, "BY", "READY", "COUNT", String(queuesMost)])).items) {
			queues.set(key(bytes(q.name)), bytes(q.name));
		}
	}
	for (const queue of [...queues.values()].slice(0, queuesMost)) {
		for (const k of page(await run(["FILA.KEYS", queue, "BY", "AGE", "COUNT", String(keysMost)])).items) {
			if (list(k.blocked_by).some((t) => same(bytes(t), name))) {
				found.push({ queue, k });
			}
		}
	}
	return found;
}

const throttleRanges: [string, string][] = [["900", "15 min"], ["3600", "1 h"], ["live", "Live"]];

export function ThrottlePage({ name, route }: { name: Bytes; route: Route }) {
	useTitle(text(name));
	const asked = useReply(["FILA.THROTTLE", "GET", name], 1000);
	const t = asked.data as Fields | null | undefined;
	const source = "t" + key(name);
	const [waiting, found] = useState<Waiting[]>([]);
	useEffect(() => {
		if (t) {
			record(source, Date.now(), { ...t, enqueued: t.passed ?? 0 });
		}
	}, [t]);
	const range = rangeOf(route, throttleRanges);
	const live = range === "live";
	const past = usePast([name], live ? "" : range, ["FILA.THROTTLE", "HISTORY"]);
	const waits = num(t?.waiting) > 0;
	useEffect(() => {
		let open = true;
		const look = () => void waitingFor(name).then((w) => open && found(w), () => undefined);
		const timer = waits ? setInterval(look, 5000) : undefined;
		waits ? look() : found([]);
		return () => {
			open = false;
			clearInterval(timer);
		};
	}, [source, waits]);
	const crumbs: [string, string][] = [["Throttles", "#/throttles"]];
	if (!t) {
		return (
			<Page title={text(name)} crumbs={crumbs}>
				{asked.error ? <Failure error={asked.error} /> : asked.busy && t === undefined ? <Loading /> : <Empty title="Nothing limits or holds this throttle.">Messages may name it all the same.</Empty>}
			</Page>
		);
	}
	const samples = live ? recorded(source) : past.samples;
	const queues = [...new Map(waiting.map((w) => [key(w.queue), w.queue])).values()];
	return (
		<Page title={text(name)} crumbs={crumbs} actions={<Actions>{throttleActions(t, asked.reload)}</Actions>}>
			<Card>
				<Facts facts={[
					["Rate", t.rate === null ? "no limit" : `${figure(num(t.rate))}/s, at most ${count(num(t.burst))} at once${num(t.by_cost) ? ", by cost" : ""}`],
					["Tokens", t.rate === null ? "–" : count(Math.floor(num(t.tokens)))],
					["Leases", <Leases t={t} />],
					["Goes on", <Next t={t} />],
					...(t.pattern !== null && t.pattern !== undefined ? [["Limits of", <a href={to(["throttles", bytes(t.pattern)])}>{text(t.pattern)}</a>] as [string, preact.ComponentChildren]] : []),
					...(maybe(t.instances) !== null ? [["Throttles of the pattern", <a href={to(["throttles"], { match: text(name) })}>{count(num(t.instances))}</a>] as [string, preact.ComponentChildren]] : []),
					["Keys waiting", count(num(t.waiting))],
					["Passed, refused", `${count(num(t.passed))}, ${count(num(t.refused))}`],
					["Waited, by all keys together", duration(num(t.waited_ms))],
				]} />
			</Card>
			<Ranges route={route} options={throttleRanges} />
			<Failure error={past.error} />
			<Charts key={range} times={samples.map((s) => s.at)} charts={[
				{ title: "Passed per second", unit: "per second", series: [{ name: "passed", color: "--c2", values: live ? rates(samples, "passed") : pastRates(samples, "passed") }] },
				{ title: "Leases and waiting keys", unit: "count", series: [
					{ name: "leases", color: "--c1", values: levels(samples, "held") },
					{ name: "keys waiting", color: "--c3", values: levels(samples, "waiting") },
				] },
			]} />
			{samples.length < 2 && <p class="caption">{live ? "Live charts begin when this page is opened." : "The broker keeps the history of this throttle from now on. The first figures come within twenty seconds."}</p>}
			<Card title="Keys that wait for it" note={num(t.waiting) > waiting.length && waiting.length > 0 ? <>the {count(waiting.length)} of {count(num(t.waiting))} that wait longest, all are among the keys of {queues.map((q, i) => <>{i > 0 && ", "}<a key={key(q)} href={to(["queues", q], { match: "*" })}>{text(q)}</a></>)}</> : undefined}>
				<Table caption="Keys that wait for the throttle" rows={waiting} id={(w) => key(w.queue) + " " + key(bytes(w.k.key))}
					empty={<Empty title={waits ? "None is among the keys that wait longest in the fullest queues." : "No key waits for it."} />} columns={[
						{ name: "Key", head: true, wide: true, cell: (w) => <a href={to(["queues", w.queue, "keys", bytes(w.k.key)])}>{text(w.k.key)}</a> },
						{ name: "Queue", cell: (w) => <a href={to(["queues", w.queue])}>{text(w.queue)}</a> },
						{ name: "State", wide: true, cell: (w) => <Why queue={w.queue} k={w.k} /> },
						{ name: "Ready", right: true, cell: (w) => count(num(w.k.depth)) },
						{ name: "Oldest", right: true, cell: (w) => duration(maybe(w.k.oldest_ms)) },
					]} />
			</Card>
		</Page>
	);
}
