// What figures were over the last ten minutes, for charts and rates: what the broker has kept
// (FILA.HISTORY) for as long as the page was not open, and what the page has seen since. It is kept
// for a few sources.

import { run } from "./api";
import type { Bytes, Fields } from "./api";
import { maps, num } from "./value";

const samplesMax = 700; // one a second, and those of the broker
const sourcesMax = 8;
const gap = 15_000; // ms between two samples, beyond which nothing is known of the time in between

export interface Sample {
	at: number;
	figures: Fields;
}

const sources = new Map<string, Sample[]>();

/** keep makes samples those of a source. */
function keep(source: string, samples: Sample[]) {
	const newest = samples[samples.length - 1]?.at ?? 0;
	while (samples.length > samplesMax || (samples[0] && samples[0].at < newest - 600_000)) {
		samples.shift();
	}
	sources.delete(source);
	sources.set(source, samples); // the source that was used last is the last
	for (const old of sources.keys()) {
		if (sources.size <= sourcesMax) {
			break;
		}
		sources.delete(old);
	}
}

/** record adds a sample to a source. It reports whether nothing is known of the time before it. */
export function record(source: string, at: number, figures: Fields): boolean {
	let samples = sources.get(source) ?? [];
	const last = samples[samples.length - 1];
	if (last && at <= last.at) {
		return false;
	}
	if (last && num(figures.enqueued) < num(last.figures.enqueued)) {
		samples = []; // the broker has been restarted
	}
	const before = samples[samples.length - 1];
	const alone = !before || at - before.at > gap;
	if (before && alone) {
		samples.push({ at: before.at + 1, figures: {} });
	}
	samples.push({ at, figures });
	keep(source, samples);
	return alone;
}

/** fill asks the broker for what a source lacks. A broker that has not kept it leaves a gap. */
export async function fill(source: string, words: Bytes[]): Promise<void> {
	const past: Sample[] = maps(await run(words)).map((figures) => ({ at: num(figures.at), figures }));
	const seen = (sources.get(source) ?? []).filter((s) => s.figures.enqueued !== undefined);
	// Between two samples of the page that are near to each other, those of the broker say nothing new.
	const lacked = past.filter((p) => {
		const after = seen.findIndex((s) => s.at >= p.at);
		const [a, b] = [seen[after - 1], seen[after]];
		if (b?.at === p.at) {
			return false; // it was asked for before
		}
		return after === 0 || (a !== undefined && b !== undefined && b.at - a.at > gap);
	});
	const all: Sample[] = [];
	for (const s of [...seen, ...lacked].sort((a, b) => a.at - b.at)) {
		const before = all[all.length - 1];
		if (before && s.at - before.at > gap) {
			all.push({ at: before.at + 1, figures: {} });
		}
		all.push(s);
	}
	if (all.length > 0) {
		keep(source, all);
	}
}

export function recorded(source: string): Sample[] {
	return sources.get(source) ?? [];
}

/** forget drops everything: another user may see less. */
export function forget() {
	sources.clear();
}

/** rateOf returns how much a counter grows in a second, over the last few seconds; null if that is not known. */
export function rateOf(samples: Sample[], name: string, at = samples.length - 1, over = 3): number | null {
	const end = samples[at];
	let from = at - 1;
	while (from > 0 && from > at - over && end && (samples[from - 1]?.at ?? 0) > end.at - over * 1500 && samples[from - 1]?.figures[name] !== undefined) {
		from--;
	}
	const begin = samples[from];
	if (!end || !begin || end.at - begin.at > gap || end.figures[name] === undefined || begin.figures[name] === undefined) {
		return null;
	}
	return Math.max(0, ((num(end.figures[name]) - num(begin.figures[name])) * 1000) / (end.at - begin.at));
}

/** levels are the values of a figure; null where nothing is known. */
export function levels(samples: Sample[], name: string): (number | null)[] {
	return samples.map((s) => (s.figures[name] === undefined ? null : num(s.figures[name])));
}

export function rates(samples: Sample[], ...names: string[]): (number | null)[] {
	return samples.map((_, i) => {
		let sum: number | null = null;
		for (const name of names) {
			const r = rateOf(samples, name, i);
			if (r !== null) {
				sum = (sum ?? 0) + r;
			}
		}
		return sum;
	});
}
