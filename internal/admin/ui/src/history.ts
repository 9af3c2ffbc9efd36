// What live figures were over the last ten minutes, for charts and rates. It is kept for as long as
// the page is open, for a few sources.

import type { Fields } from "./api";
import { num } from "./value";

const samplesMax = 600;
const sourcesMax = 8;
const gap = 15_000; // ms between two samples, beyond which nothing is known of the time in between

export interface Sample {
	at: number;
	figures: Fields;
}

const sources = new Map<string, Sample[]>();

/** record adds a sample to a source and returns all that it has. */
export function record(source: string, at: number, figures: Fields): Sample[] {
	const samples = sources.get(source) ?? [];
	sources.delete(source);
	sources.set(source, samples); // the source that was used last is the last
	const last = samples[samples.length - 1];
	if (!last || at > last.at) {
		if (last && num(figures.enqueued) < num(last.figures.enqueued)) {
			samples.length = 0; // the broker has been restarted
		}
		const before = samples[samples.length - 1];
		if (before && at - before.at > gap) {
			samples.push({ at: before.at + 1, figures: {} }); // nothing is known of the time in between
		}
		samples.push({ at, figures });
	}
	while (samples.length > samplesMax || (samples[0] && samples[0].at < at - 600_000)) {
		samples.shift();
	}
	for (const old of sources.keys()) {
		if (sources.size <= sourcesMax) {
			break;
		}
		sources.delete(old);
	}
	return samples;
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
