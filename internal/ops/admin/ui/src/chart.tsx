// Time series. The picture is drawn on a canvas, so there is a table behind it.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { short, time } from "./format";

/** Series is a line of a chart. */
export interface Series {
	name: string;
	color: string; // a custom property of the style sheet
	values: (number | null)[];
}

/** themeChanges calls f when the colours of the page change. */
export function onTheme(f: () => void): () => void {
	const media = matchMedia("(prefers-color-scheme: dark)");
	const observer = new MutationObserver(f);
	observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
	media.addEventListener("change", f);
	return () => {
		media.removeEventListener("change", f);
		observer.disconnect();
	};
}

/** resolved returns the colour of a custom property as a canvas takes it. */
function resolved(host: HTMLElement, property: string): string {
	const probe = document.createElement("span");
	probe.style.color = `var(${property})`;
	host.append(probe);
	const color = getComputedStyle(probe).color;
	probe.remove();
	return color;
}

const height = 140;

const pad = (n: number) => String(n).padStart(2, "0");
const clock = (s: number) => {
	const d = new Date(s * 1000);
	return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
};

/** Span is the part of the time that charts show, in seconds; null: all of it. */
export type Span = [from: number, to: number] | null;

/** Drawing is a chart of a group. */
export interface Drawing {
	title: string;
	unit: string;
	series: Series[];
}

const leastSpan = 5; // seconds; nearer there is nothing to be seen

/** Charts draws charts over the same time. To zoom in one of them zooms in all. */
export function Charts({ times, charts }: { times: number[]; charts: Drawing[] }) {
	const [span, show] = useState<Span>(null);
	const end = (times[times.length - 1] ?? Date.now()) / 1000; // until there is something to be seen, the last minute is empty
	const begin = times[0] === undefined ? end : times[0] / 1000;
	const all = Math.max(60, end - begin);
	useEffect(() => {
		if (span && span[1] < begin) {
			show(null); // what it showed is too long ago
		}
	}, [begin]);
	const zoom = (from: number, to: number) => {
		const width = Math.min(all, Math.max(leastSpan, to - from));
		const middle = Math.min(end - width / 2, Math.max(end - all + width / 2, (from + to) / 2));
		show(width >= all ? null : [middle - width / 2, middle + width / 2]);
	};
	return (
		<section class="charts" aria-label="Charts">
			{charts.map((c) => <Chart key={c.title} {...c} times={times} span={span} all={[end - all, end]} onZoom={zoom} />)}
			{span && (
				<p class="zoomed">
					<span role="status">From {clock(span[0])} to {clock(span[1])}</span>
					<button type="button" class="small" onClick={() => show(null)}>Show all</button>
				</p>
			)}
		</section>
	);
}

/** Chart draws series over the time that they have, at least a minute, or a part of it. */
function Chart({ title, times, series, unit, span, all, onZoom }: Drawing & { times: number[]; span: Span; all: [number, number]; onZoom(from: number, to: number): void }) {
	const shown = useRef(all);
	shown.current = span ?? all;
	const zoom = useRef(onZoom);
	zoom.current = onZoom;
	const help = useId();
	const host = useRef<HTMLDivElement>(null);
	const plot = useRef<uPlot | null>(null);
	const [theme, themes] = useState(0);
	useEffect(() => onTheme(() => themes((n) => n + 1)), []);
	const data = [times.map((t) => t / 1000), ...series.map((s) => s.values)] as uPlot.AlignedData;
	const shape = series.map((s) => s.name + s.color).join();
	useEffect(() => {
		const box = host.current;
		if (!box) {
			return;
		}
		const line = resolved(box, "--line");
		const muted = resolved(box, "--muted");
		const axis: uPlot.Axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
		const p = new uPlot({
			width: box.clientWidth || 300,
			height,
			padding: [10, 28, 0, 0],
			legend: { show: false },
			cursor: {
				y: false, points: { size: 5 }, drag: { x: true, y: false, setScale: false },
				bind: { dblclick: () => () => (zoom.current(-Infinity, Infinity), null) },
			},
			scales: {
				x: { time: true, range: () => shown.current },
				y: { range: (_u, _min, max) => [0, Math.max(1, (max ?? 0) * 1.1)] },
			},
			axes: [
				{ ...axis, values: (_u, splits) => splits.map((s) => clock(s).slice(0, shown.current[1] - shown.current[0] < 240 ? 8 : 5)), space: 80, size: 26 },
				{ ...axis, size: 46, values: (_u, splits) => splits.map((v) => (Number.isInteger(v) ? short(v) : "")) },
			],
			series: [{}, ...series.map((s) => ({ label: s.name, stroke: resolved(box, s.color), width: 1.5, points: { show: false }, spanGaps: false }))],
			hooks: {
				setSelect: [(u) => {
					if (u.select.width > 0) {
						const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
						u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
						zoom.current(from, to);
					}
				}],
			},
		}, data, box);
		plot.current = p;
		const sizes = new ResizeObserver(() => p.setSize({ width: box.clientWidth, height }));
		sizes.observe(box);
		return () => {
			sizes.disconnect();
			p.destroy();
			plot.current = null;
		};
	}, [theme, shape]);
	useEffect(() => plot.current?.setData(data), [times.length, times[0], times[times.length - 1], theme, span?.[0], span?.[1]]);
	const keys = (e: KeyboardEvent) => {
		const [from, to] = shown.current;
		const width = to - from;
		const move: Record<string, [number, number]> = {
			"+": [from + width / 4, to - width / 4], "=": [from + width / 4, to - width / 4], "-": [from - width / 2, to + width / 2],
			ArrowLeft: [from - width / 4, to - width / 4], ArrowRight: [from + width / 4, to + width / 4],
			Home: [all[0], all[0] + width], End: [all[1] - width, all[1]], "0": [-Infinity, Infinity], Escape: [-Infinity, Infinity],
		};
		const next = move[e.key];
		if (next && !e.ctrlKey && !e.metaKey && !e.altKey) {
			e.preventDefault();
			onZoom(...next);
		}
	};
	const inside = times.map((_, i) => i).filter((i) => span === null || (times[i] ?? 0) >= span[0] * 1000 && (times[i] ?? 0) <= span[1] * 1000);
	const last = inside[inside.length - 1] ?? times.length - 1; // the legend has what is at the right end
	const step = Math.max(1, Math.ceil(inside.length / 20));
	const rows = inside.filter((_, i) => (inside.length - 1 - i) % step === 0).reverse();
	return (
		<figure class="chart">
			<figcaption>
				<span class="name">{title}</span>
				<ul class="legend">
					{series.map((s) => (
						<li key={s.name}><span class="swatch" style={{ background: `var(${s.color})` }} aria-hidden="true" />{s.name} <b>{value(s.values[last])}</b></li>
					))}
				</ul>
			</figcaption>
			<div class="plotbox" role="group" tabIndex={0} aria-label={`Chart: ${title}`} aria-describedby={help} onKeyDown={keys} title="Drag to zoom, double click to show all">
				<div class="plot" ref={host} aria-hidden="true" />
				<span class="hidden" id={help}>Plus and minus zoom, the arrow keys move, zero shows all. The table has the figures of what is shown.</span>
			</div>
			<details>
				<summary>Table</summary>
				<div class="table" role="group" aria-label={`${title}, ${unit}`} tabIndex={0}>
					<table>
						<caption class="hidden">{title}, {unit}</caption>
						<thead><tr><th scope="col">time</th>{series.map((s) => <th key={s.name} scope="col" class="right">{s.name}</th>)}</tr></thead>
						<tbody>
							{rows.map((i) => (
								<tr key={times[i]}><th scope="row">{time(times[i] ?? null)}</th>{series.map((s) => <td key={s.name} class="right">{value(s.values[i])}</td>)}</tr>
							))}
						</tbody>
					</table>
				</div>
			</details>
		</figure>
	);
}

function value(v: number | null | undefined): string {
	return v === null || v === undefined ? "–" : v > 0 && v < 10 && !Number.isInteger(v) ? v.toFixed(1) : short(Math.round(v));
}
