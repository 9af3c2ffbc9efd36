import { useState } from "preact/hooks";
import type { Bytes } from "../api";
import { useApp, useReply, useTitle } from "../app";
import type { Action } from "../app";
import { plural } from "../format";
import { refine, to } from "../route";
import type { Route } from "../route";
import { ActionButton, Card, Code, Empty, Failure, Loading, Page, Pager, Search, Table, Tabs } from "../ui";
import { bytes, key, list, pairs, text } from "../value";

export function Configuration({ route }: { route: Route }) {
	useTitle("Configuration");
	const server = route.path[1] === "server";
	return (
		<Page title="Configuration" sub={server ? "Settings of the server. Those that can be changed here last until it stops." : "Values that scripts read. Messages that are enqueued after a change see it."}
			actions={server ? undefined : <ActionButton primary action={setValue()} />}>
			<Tabs current={server ? "Server" : "Runtime"} tabs={[["Runtime", to(["config"])], ["Server", to(["config", "server"])]]} />
			{server ? <Server route={route} /> : <Runtime route={route} />}
		</Page>
	);
}

function setValue(name?: Bytes, value?: string, after?: () => void): Action {
	return {
		label: name === undefined ? "New value" : "Change", title: name === undefined ? "New value" : `Change ${text(name)}`, need: { command: "FILA.CONFIG SET" }, submit: "Set",
		fields: [...(name === undefined ? [{ name: "key", label: "Name", required: true, placeholder: "weight:acme" }] : []), { name: "value", label: "Value", value }],
		words: (v) => ["FILA.CONFIG", "SET", name ?? v.key ?? "", v.value ?? ""], done: () => "The value is set.", after,
	};
}

function Runtime({ route }: { route: Route }) {
	const app = useApp();
	const why = app.may({ command: "FILA.CONFIG LIST" });
	const prefix = route.query.get("match") ?? "";
	const [cursor, setCursor] = useState<Bytes>("0");
	const asked = useReply(why === "" ? ["FILA.CONFIG", "LIST", ...(prefix ? ["PREFIX", prefix] : []), "CURSOR", cursor, "COUNT", "100"] : null, 3000);
	const [next = "0", flat] = list(asked.data);
	const values = list(flat);
	const rows = values.filter((_, i) => i % 2 === 0).map((name, i) => ({ name: bytes(name), value: bytes(values[i * 2 + 1]) }));
	if (why !== "") {
		return <Empty title="You may not see the configuration.">This {why}.</Empty>;
	}
	return (
		<Card actions={<Search label="Names that begin with" shortcut value={prefix} onChange={(v) => {
			setCursor("0");
			refine(route, { match: v });
		}} />}>
			<Failure error={asked.error} />
			{asked.data === undefined ? !asked.error && <Loading /> : (
				<Table caption="Runtime configuration" rows={rows} id={(r) => key(r.name)} empty={<Empty title={prefix ? "No name begins like that." : "No value is set."}>{!prefix && <>Scripts read them with <code>fila.get(name, default)</code>.</>}</Empty>} columns={[
					{ name: "Name", head: true, wide: true, sort: (r) => text(r.name), cell: (r) => <Code>{text(r.name)}</Code> },
					{ name: "Value", wide: true, sort: (r) => text(r.value), cell: (r) => <Code>{text(r.value)}</Code> },
					{ name: "Actions", cell: (r) => (
						<span class="rowactions">
							<ActionButton small action={setValue(r.name, text(r.value), asked.reload)} />
							<ActionButton small action={{
								label: "Remove", title: `Remove ${text(r.name)}`, need: { command: "FILA.CONFIG DEL" }, danger: { what: "Scripts that read it get their default.", name: text(r.name) },
								words: () => ["FILA.CONFIG", "DEL", r.name], done: () => "The value is removed.", after: asked.reload,
							}} />
						</span>
					) },
				]} />
			)}
			<Pager what="values" first={cursor === "0"} next={text(next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(bytes(next))} />
		</Card>
	);
}

/** changeable are the settings that CONFIG SET takes. */
const changeable = ["loglevel", "latency-monitor-threshold", "slowlog-log-slower-than", "slowlog-max-len"];

function Server({ route }: { route: Route }) {
	const app = useApp();
	const why = app.may({ command: "CONFIG GET" });
	const match = (route.query.get("match") ?? "").toLowerCase();
	const asked = useReply(why === "" ? ["CONFIG", "GET", "*"] : null, 10_000);
	const rows = pairs(asked.data).map(([name, value]) => ({ name: text(name), value: text(value) })).filter((r) => r.name.toLowerCase().includes(match));
	if (why !== "") {
		return <Empty title="You may not see the settings of the server.">This {why}.</Empty>;
	}
	return (
		<Card title={plural(rows.length, "setting")} actions={<Search label="Filter by name" shortcut value={route.query.get("match") ?? ""} onChange={(v) => refine(route, { match: v })} />}>
			<Failure error={asked.error} />
			{asked.data === undefined ? !asked.error && <Loading /> : (
				<Table caption="Settings of the server" rows={rows} id={(r) => r.name} empty={<Empty title="No setting has such a name." />} columns={[
					{ name: "Setting", head: true, sort: (r) => r.name, cell: (r) => <Code>{r.name}</Code> },
					{ name: "Value", wide: true, cell: (r) => (r.value === "" ? <span class="zero">empty</span> : <Code>{r.value}</Code>) },
					{ name: "Actions", cell: (r) => changeable.includes(r.name) && (
						<ActionButton small action={{
							label: "Change", title: `Change ${r.name}`, need: { command: "CONFIG SET" }, fields: [{ name: "value", label: "Value", value: r.value }], submit: "Set", text: "It lasts until the broker stops; the configuration file keeps it for good.",
							words: (v) => ["CONFIG", "SET", r.name, v.value ?? ""], done: () => "The setting is changed.", after: asked.reload,
						}} />
					) },
				]} />
			)}
		</Card>
	);
}
