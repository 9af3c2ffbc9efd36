// Consumers of a queue: which clients wait for its messages, and which hold leases.

import type { Bytes, Fields } from "../api";
import { useApp, useReply } from "../app";
import { ago, count, duration, plural, short } from "../format";
import { to } from "../route";
import { Card, Empty, Failure, Level, Loading, Table } from "../ui";
import { maps, maybe, num, page, text } from "../value";

const shownMax = 200;
const lookedAt = 2000; // messages, for the leases

export function Consumers({ queue, q }: { queue: Bytes; q: Fields }) {
	return (
		<>
			<Waiting queue={queue} total={num(q.waiters)} />
			<Holding queue={queue} leased={num(q.leased)} total={num(q.ready) + num(q.leased) + num(q.delayed) + num(q.dead)} />
		</>
	);
}

/** Waiting lists the clients that wait, in the order in which they are served. */
function Waiting({ queue, total }: { queue: Bytes; total: number }) {
	const why = useApp().may({ command: "FILA.WAITERS", queue, access: "consume" });
	const asked = useReply(why === "" ? ["FILA.WAITERS", queue, "COUNT", String(shownMax)] : null, 2000);
	const rows = maps(asked.data).map((w, i) => ({ ...w, place: i + 1 }) as Fields);
	return (
		<Card title={plural(total, "waiting client")} note={total > shownMax ? `the first ${shownMax} are shown` : "in the order in which they get messages"}>
			<Failure error={asked.error} />
			{why !== "" ? <Empty title="You may not see the clients that wait.">This {why}.</Empty>
				: asked.data === undefined ? !asked.error && <Loading /> : (
					<Table caption="Clients that wait" rows={rows} id={(w) => text(w.id)} empty={<Empty title="No client waits for messages.">Those that work do not wait, and those that ask without waiting are never here.</Empty>} columns={[
						{ name: "Place", right: true, sort: (w) => num(w.place), cell: (w) => text(w.place) },
						{ name: "Address", head: true, cell: (w) => <span class="mono">{text(w.addr) || "gone"}</span> },
						{ name: "Name", wide: true, sort: (w) => text(w.name), cell: (w) => text(w.name) || <span class="zero">–</span> },
						{ name: "Consumer", wide: true, sort: (w) => text(w.consumer), cell: (w) => text(w.consumer) || <span class="zero">–</span> },
						{ name: "User", sort: (w) => text(w.user), cell: (w) => text(w.user) },
						{ name: "Waits for", right: true, sort: (w) => num(w.idle_ms), cell: (w) => duration(maybe(w.idle_ms)) },
						{ name: "Until", right: true, cell: (w) => (w.until === null ? "it gets one" : ago(maybe(w.until))) },
						{ name: "Queues", right: true, hint: "How many queues it waits for", sort: (w) => num(w.queues), cell: (w) => count(num(w.queues)) },
					]} />
				)}
		</Card>
	);
}

/** Holding sums up the leases by consumer, of the messages that come first in the queue. */
function Holding({ queue, leased, total }: { queue: Bytes; leased: number; total: number }) {
	const why = useApp().may({ command: "FILA.BROWSE", queue, access: "consume" });
	const asked = useReply(why === "" && leased > 0 ? ["FILA.BROWSE", queue, "STATUS", "leased", "COUNT", String(lookedAt)] : null, 3000);
	const { next, items } = page(asked.data);
	const by = new Map<string, { name: string; leases: number; ends: number }>();
	for (const m of items) {
		const name = text(m.consumer);
		const old = by.get(name) ?? { name, leases: 0, ends: Infinity };
		by.set(name, { name, leases: old.leases + 1, ends: Math.min(old.ends, num(m.lease_until)) });
	}
	const rows = [...by.values()].sort((a, b) => b.leases - a.leases);
	const most = rows[0]?.leases ?? 1;
	const some = text(next) !== "0" && items.length < leased;
	return (
		<Card title={plural(leased, "lease")} note={some ? `those among the first ${count(lookedAt)} of ${short(total)} messages` : undefined}>
			<Failure error={asked.error} />
			{why !== "" ? <Empty title="You may not look at messages here.">This {why}.</Empty>
				: leased > 0 && asked.data === undefined ? !asked.error && <Loading /> : (
					<Table caption="Consumers that hold leases" rows={rows} id={(c) => c.name} empty={<Empty title={leased === 0 ? "No message is leased." : "None of these messages is leased."} />} columns={[
						{ name: "Consumer", head: true, wide: true, sort: (c) => c.name, cell: (c) => c.name || "(without a name)" },
						{ name: "Leases", right: true, sort: (c) => c.leases, cell: (c) => count(c.leases) },
						{ name: "Part", cell: (c) => <Level value={c.leases} max={most} label={`${c.leases} of ${items.length}`} /> },
						{ name: "The first ends", right: true, sort: (c) => c.ends, cell: (c) => ago(c.ends) },
					]} />
				)}
			{leased > 0 && <p class="caption"><a href={to(["queues", queue, "messages"], { status: "leased" })}>The leased messages</a>. A consumer has the name that its leases give: <code>CONSUMER</code> of <code>FILA.LEASE</code>.</p>}
		</Card>
	);
}
