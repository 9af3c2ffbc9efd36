import type { Fields } from "../api";
import { ago, short } from "../format";
import type { Route } from "../route";
import { ActionButton, Empty } from "../ui";
import type { Column } from "../ui";
import { bytes, maybe, num, text } from "../value";
import { List } from "./listing";

/** known are the fields of a signal that are no window. */
const known = ["subject", "name", "velocity", "updated_at"];

function figure(n: number): string {
	return Number.isInteger(n) || Math.abs(n) >= 1000 ? short(n) : n.toPrecision(3).replace(/\.?0+$/, "");
}

export function Signals({ route }: { route: Route }) {
	return (
		<List route={route} of={{
			title: "Signals", what: "signals", filter: "Filter by subject", words: ["FILA.SIGNAL", "LIST"], command: "FILA.SIGNAL LIST",
			sub: "Sums that fade with time, such as the failures of a tenant in the last hour.", id: (s) => `${text(s.subject)} ${text(s.name)}`,
			create: {
				label: "Add a value", need: { command: "FILA.SIGNAL ADD" },
				fields: [{ name: "subject", label: "Subject", required: true, placeholder: "tenant:acme" }, { name: "name", label: "Name", required: true, placeholder: "pages" }, { name: "value", label: "Value", placeholder: "1" }],
				words: (v) => ["FILA.SIGNAL", "ADD", v.subject ?? "", v.name ?? "", ...(v.value ? [v.value] : [])], done: () => "The value is added.", submit: "Add",
			},
			empty: <Empty title="There is no signal yet.">A queue with <code>SIGNALS ON</code> records how work goes for each tenant and provider; workers add their own with <code>FILA.SIGNAL ADD</code>.</Empty>,
			columns: (reload) => [
				{ name: "Subject", head: true, wide: true, sort: (s: Fields) => text(s.subject), cell: (s: Fields) => text(s.subject) },
				{ name: "Name", sort: (s: Fields) => text(s.name), cell: (s: Fields) => text(s.name) },
				...["1m", "5m", "1h", "24h", "all"].map((w): Column<Fields> => ({
					name: w, right: true, sort: (s) => num(s[w]), cell: (s) => (s[w] === undefined ? <span class="zero">–</span> : <span title={text(s[w])}>{figure(num(s[w]))}</span>),
				})),
				{ name: "Other windows", cell: (s) => Object.keys(s).filter((f) => !known.includes(f) && !["1m", "5m", "1h", "24h", "all"].includes(f)).map((f) => `${f}: ${figure(num(s[f]))}`).join(", ") || <span class="zero">–</span> },
				{ name: "Trend", hint: "Rate per second in the first window less that in the second", right: true, sort: (s) => num(s.velocity), cell: (s) => (s.velocity === undefined ? "–" : num(s.velocity) > 1e-9 ? `rises ${figure(num(s.velocity))}/s` : num(s.velocity) < -1e-9 ? `falls ${figure(-num(s.velocity))}/s` : "steady") },
				{ name: "Newest", sort: (s) => num(s.updated_at), cell: (s) => ago(maybe(s.updated_at)) },
				{ name: "Actions", cell: (s) => (
					<ActionButton small action={{
						label: "Delete", title: `Delete ${text(s.name)} of ${text(s.subject)}`, need: { command: "FILA.SIGNAL DEL" },
						danger: { what: "All windows of this signal go.", name: text(s.subject) },
						words: () => ["FILA.SIGNAL", "DEL", bytes(s.subject), bytes(s.name)], done: () => "The signal is deleted.", after: reload,
					}} />
				) },
			],
		}} />
	);
}
