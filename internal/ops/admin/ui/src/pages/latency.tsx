import { useState } from "preact/hooks";
import { useApp, useReply, useTitle } from "../app";
import { Charts } from "../chart";
import { count, duration, micros, spoken } from "../format";
import { ActionButton, Card, Empty, Failure, Loading, Page, Table, Time } from "../ui";
import { fields, list, num, text } from "../value";

export function Latency() {
	useTitle("Latency");
	const app = useApp();
	const why = app.may({ command: "LATENCY LATEST" });
	const [event, choose] = useState("");
	const latest = useReply(why === "" ? ["LATENCY", "LATEST"] : null, 5000);
	const rows = list(latest.data).map(list);
	const chosen = event || text(rows[0]?.[0]);
	const history = useReply(why === "" && chosen !== "" ? ["LATENCY", "HISTORY", chosen] : null, 5000);
	const doctor = useReply(why === "" && rows.length > 0 ? ["LATENCY", "DOCTOR"] : null, 15000);
	const histogram = useReply(why === "" ? ["LATENCY", "HISTOGRAM"] : null, 5000);
	const points = list(history.data).map(list);
	const times = points.map((p) => num(p[0]) * 1000);
	const reset = {
		label: "Reset", title: "Forget latencies", need: { command: "LATENCY RESET" }, danger: { what: `The histories of ${rows.length} events go.`, name: "latency" },
		words: () => ["LATENCY", "RESET"], done: () => "The histories are empty.", after: () => {
			latest.reload();
			history.reload();
		},
	};
	const commands = Object.entries(fields(histogram.data)).map(([name, v]) => ({ name, ...quantiles(fields(v)) }));
	return (
		<Page title="Latency" sub="Turns of the engine, commits and commands that took longer than the threshold of the latency monitor, and how long all commands take." actions={<ActionButton action={reset} />}>
			{why !== "" ? <Empty title="You may not see latencies.">This {why}.</Empty> : (
				<>
					<Card title="Events">
						<Failure error={latest.error} />
						{latest.data === undefined ? !latest.error && <Loading /> : (
							<Table caption="Latency events" rows={rows} id={(e) => text(e[0])} empty={<Empty title="Nothing was slow." />} columns={[
								{ name: "Event", head: true, cell: (e) => <button type="button" class="small" aria-pressed={text(e[0]) === chosen} onClick={() => choose(text(e[0]))}>{text(e[0])}</button> },
								{ name: "Last", cell: (e) => <Time at={num(e[1]) * 1000} /> },
								{ name: "Took", right: true, cell: (e) => duration(num(e[2])) },
								{ name: "Longest", right: true, cell: (e) => duration(num(e[3])) },
							]} />
						)}
						{points.length > 1 && <Charts times={times} charts={[{ title: `The longest ${chosen} of each second`, unit: "ms", series: [{ name: "ms", color: "--c1", values: points.map((p) => num(p[1])) }] }]} />}
					</Card>
					{rows.length > 0 && (
						<Card title="What the broker says">
							<Failure error={doctor.error} />
							<pre class="payload" tabIndex={0} aria-label="Report">{spoken(text(doctor.data))}</pre>
						</Card>
					)}
					<Card title="Commands" note="time until the reply may be sent, without waiting for messages">
						<Failure error={histogram.error} />
						<Table caption="Durations of commands" rows={commands} id={(c) => c.name} empty={<Empty title="No command was counted." />} columns={[
							{ name: "Command", head: true, sort: (c) => c.name, cell: (c) => <span class="mono">{c.name}</span> },
							{ name: "Calls", right: true, sort: (c) => c.calls, cell: (c) => count(c.calls) },
							{ name: "p50 below", right: true, sort: (c) => c.p50, cell: (c) => micros(c.p50) },
							{ name: "p99 below", right: true, sort: (c) => c.p99, cell: (c) => micros(c.p99) },
							{ name: "Longest below", right: true, sort: (c) => c.max, cell: (c) => micros(c.max) },
						]} />
					</Card>
				</>
			)}
		</Page>
	);
}

/** quantiles reads a cumulative histogram: bounds in microseconds, with how many calls took less. */
function quantiles(h: Record<string, unknown>) {
	const calls = num(h.calls as number);
	const buckets = Object.entries(fields(h.histogram_usec as never)).map(([bound, n]) => [Number(bound), num(n)] as const).sort((a, b) => a[0] - b[0]);
	const at = (part: number) => buckets.find(([, n]) => n >= calls * part)?.[0] ?? 0;
	return { calls, p50: at(0.5), p99: at(0.99), max: at(1) };
}
