import { useState } from "preact/hooks";
import { useApp, useReply, useTitle } from "../app";
import type { Action } from "../app";
import { count, duration } from "../format";
import { refine } from "../route";
import type { Route } from "../route";
import { ActionButton, Card, Empty, Failure, Loading, Num, Page, Search, Table } from "../ui";
import { clientLines, text } from "../value";

const shownMax = 200;

export function Clients({ route }: { route: Route }) {
	useTitle("Clients");
	const app = useApp();
	const why = app.may({ command: "CLIENT LIST" });
	const match = (route.query.get("match") ?? "").toLowerCase();
	const [all, showAll] = useState(false);
	const asked = useReply(why === "" ? ["CLIENT", "LIST"] : null, 3000);
	const rows = clientLines(text(asked.data));
	const found = rows.filter((c) => match === "" || Object.values(c).some((v) => v.toLowerCase().includes(match)));
	const shown = all ? found : found.slice(0, shownMax);
	return (
		<Page title="Clients" sub="Connections to the broker, those of this dashboard among them.">
			{why !== "" ? <Empty title="You may not see the clients.">This {why}.</Empty> : (
				<Card title={`${count(rows.length)} connections`} actions={<Search label="Filter by any field" shortcut value={route.query.get("match") ?? ""} onChange={(v) => refine(route, { match: v })} />}>
					<Failure error={asked.error} />
					{asked.data === undefined ? !asked.error && <Loading /> : (
						<Table caption="Clients" rows={shown} id={(c) => c.id ?? ""} empty={<Empty title="No connection is like that." />} columns={[
							{ name: "Address", head: true, sort: (c) => c.addr ?? "", cell: (c) => <span class="mono">{c.addr}</span> },
							{ name: "Name", wide: true, sort: (c) => c.name ?? "", cell: (c) => c.name || <span class="zero">–</span> },
							{ name: "User", sort: (c) => c.user ?? "", cell: (c) => c.user },
							{ name: "Command", sort: (c) => c.cmd ?? "", cell: (c) => <span class="mono">{c.cmd}</span> },
							{ name: "Age", right: true, sort: (c) => Number(c.age), cell: (c) => duration(Number(c.age) * 1000) },
							{ name: "Idle", right: true, sort: (c) => Number(c.idle), cell: (c) => duration(Number(c.idle) * 1000) },
							{ name: "Subscriptions", right: true, sort: (c) => Number(c.sub) + Number(c.psub), cell: (c) => <Num n={Number(c.sub ?? 0) + Number(c.psub ?? 0)} /> },
							{ name: "Protocol", right: true, cell: (c) => `RESP${c.resp ?? "2"}` },
							{ name: "Library", cell: (c) => [c["lib-name"], c["lib-ver"]].filter(Boolean).join(" ") || <span class="zero">–</span> },
							{ name: "Actions", cell: (c) => <ActionButton small action={kill(c, asked.reload)} /> },
						]} />
					)}
					{found.length > shown.length && <p class="caption">{shown.length} of {count(found.length)} are shown. <button type="button" class="small" onClick={() => showAll(true)}>Show all</button></p>}
				</Card>
			)}
		</Page>
	);
}

function kill(c: Record<string, string>, after: () => void): Action {
	return {
		label: "Close", title: `Close the connection ${c.addr}`, need: { command: "CLIENT KILL" },
		danger: { what: `Messages that ${c.user} has leased on it go back to their queues when their leases end.`, name: c.addr ?? "" },
		words: () => ["CLIENT", "KILL", "ID", c.id ?? ""], done: () => "The connection is closed.", after,
	};
}
