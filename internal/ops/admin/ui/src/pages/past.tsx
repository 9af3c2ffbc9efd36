// What queues and fairness keys did over a time that is chosen by its name; a part of it by a drag over a chart.

import type { Bytes } from "../api";
import { useApp, useReply } from "../app";
import { Charts } from "../chart";
import { refine } from "../route";
import type { Route } from "../route";
import type { Sample } from "../history";
import { levels } from "../history";
import { Choice, Failure } from "../ui";
import { maps, maybe, num } from "../value";

/** Range is a choice of a time: its seconds, as FILA.HISTORY takes them, and its name. */
type Range = [seconds: string, name: string];

export const ranges: Range[] = [["900", "15 min"], ["3600", "1 h"], ["86400", "24 h"]];

/** Ranges chooses the time of the charts of a page; the first one needs no parameter. */
export function Ranges({ route, options }: { route: Route; options: Range[] }) {
	const [first] = options;
	return <div class="ranges"><Choice label="Time of the charts" value={rangeOf(route, options)} options={options} onChange={(v) => refine(route, { range: v === first?.[0] ? "" : v })} /></div>;
}

/** rangeOf returns the time that is chosen. */
export function rangeOf(route: Route, options: Range[]): string {
	const asked = route.query.get("range") ?? "";
	return (options.find(([v]) => v === asked) ?? options[0] ?? [""])[0];
}

/** usePast returns what the broker has kept of the last seconds, asked for again and again; none without seconds. */
export function usePast(words: Bytes[], seconds: string, command: Bytes[] = ["FILA.HISTORY"]) {
	const may = useApp().may({ command: command.join(" ") }) === "";
	const asked = useReply(may && seconds !== "" ? [...command, ...words, "RANGE", seconds] : null, 10_000);
	const samples: Sample[] = maps(asked.data).map((figures) => ({ at: num(figures.at), figures }));
	return { samples, error: asked.error };
}

/** between returns a value of each two moments, null for the first one. */
function between(samples: Sample[], of: (a: Sample, b: Sample) => number | null): (number | null)[] {
	return samples.map((b, i) => {
		const a = samples[i - 1];
		return a ? of(a, b) : null;
	});
}

const grown = (a: Sample, b: Sample, name: string) => Math.max(0, num(b.figures[name]) - num(a.figures[name]));

/** pastRates are how much counters together grew in a second between two moments, however far they are apart. */
export function pastRates(samples: Sample[], ...names: string[]): (number | null)[] {
	return between(samples, (a, b) => (names.reduce((sum, name) => sum + grown(a, b, name), 0) * 1000) / (b.at - a.at));
}

/** KeyPast is the history of a fairness key. */
export function KeyPast({ queue, fairKey, route }: { queue: Bytes; fairKey: Bytes; route: Route }) {
	const options = ranges.slice(0, 2);
	const range = rangeOf(route, options);
	const { samples, error } = usePast([queue, "KEY", fairKey], range);
	return (
		<>
			<Ranges route={route} options={options} />
			<Failure error={error} />
			{samples.length < 2 ? <p class="caption">The broker keeps the history of this key from now on. The first figures come within twenty seconds.</p> : (
				<Charts key={range} times={samples.map((s) => s.at)} charts={[
					{ title: "Messages per second", unit: "per second", series: [
						{ name: "enqueued", color: "--c1", values: pastRates(samples, "enqueued") },
						{ name: "delivered", color: "--c4", values: pastRates(samples, "delivered") },
						{ name: "acked", color: "--c2", values: pastRates(samples, "acked") },
					] },
					{ title: "Backlog", unit: "messages", series: [
						{ name: "ready", color: "--c1", values: levels(samples, "ready") },
						{ name: "leased", color: "--c2", values: levels(samples, "leased") },
						{ name: "delayed", color: "--c4", values: levels(samples, "delayed") },
					] },
					{ title: "Wait of the first message", unit: "seconds", series: [
						{ name: "seconds", color: "--c3", values: samples.map((s) => (maybe(s.figures.oldest_ms) ?? 0) / 1000) },
					] },
					{ title: "Share of the deliveries", unit: "percent", series: [
						{ name: "percent", color: "--c1", values: between(samples, (a, b) => {
							const all = grown(a, b, "queue_delivered");
							return all === 0 ? null : Math.min(100, (100 * grown(a, b, "delivered")) / all);
						}) },
					] },
				]} />
			)}
		</>
	);
}
