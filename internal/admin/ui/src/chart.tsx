// Time series. The picture is drawn on a canvas, so there is a table behind it.

import { useEffect, useRef, useState } from "preact/hooks";
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

/** Chart draws series over the time that they have, at least a minute. */
export function Chart({ title, times, series, unit }: { title: string; times: number[]; series: Series[]; unit: string }) {
	const span = Math.max(60, ((times[times.length - 1] ?? 0) - (times[0] ?? 0)) / 1000);
	const width = useRef(span);
	width.current = span;
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
			cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false } },
			scales: {
				x: { time: true, range: (_u, _min, max) => [(max ?? Date.now() / 1000) - width.current, max ?? Date.now() / 1000] },
				y: { range: (_u, _min, max) => [0, Math.max(1, (max ?? 0) * 1.1)] },
			},
			axes: [
				{ ...axis, values: (_u, splits) => splits.map((s) => clock(s).slice(0, width.current < 240 ? 8 : 5)), space: 80, size: 26 },
				{ ...axis, size: 46, values: (_u, splits) => splits.map((v) => (Number.isInteger(v) ? short(v) : "")) },
			],
			series: [{}, ...series.map((s) => ({ label: s.name, stroke: resolved(box, s.color), width: 1.5, points: { show: false }, spanGaps: false }))],
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
	useEffect(() => plot.current?.setData(data), [times.length, times[times.length - 1], theme]);
	const last = times.length - 1;
	const step = Math.max(1, Math.ceil(times.length / 20));
	const rows = times.map((_, i) => i).filter((i) => (last - i) % step === 0).reverse();
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
			<div class="plot" ref={host} aria-hidden="true" />
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
